"""A symmetric matrix that is known by its products only, and mostly by what is near its diagonal.

`probe_band` reads the entries within a bandwidth from a few products; `factorise_band` turns them into a solver, by
cyclic reduction: every second block is eliminated at once, then every second of the rest, ... Linear work in a
logarithmic number of vectorised steps, with no call to LAPACK for a tridiagonal matrix.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jaxtyping import Array, Float

from twinfold.numerics._linalg.probe import probe
from twinfold.typing import ConstraintVector, Flag


def probe_band(
    product: Callable[[ConstraintVector], ConstraintVector], like: ConstraintVector, bandwidth: int
) -> Float[Array, "m w"]:
    """The entries A[i, i + k], |k| <= bandwidth, in column k + bandwidth; exact where A has no others.

    Combs of signs, one for each of 2 bandwidth + 1 residues: entries outside the band enter with random signs.
    """
    m, width = like.shape[0], 2 * bandwidth + 1
    signs = jnp.where(probe(m, like.dtype) > 0, 1, -1).astype(like.dtype)
    residues = jnp.arange(m) % width
    combs = jnp.where(residues[None] == jnp.arange(width)[:, None], signs[None], 0)
    images = jax.lax.map(product, combs)
    columns = jnp.arange(m)[:, None] + jnp.arange(-bandwidth, width - bandwidth)[None]
    inside = (columns >= 0) & (columns < m)
    columns = jnp.clip(columns, 0, m - 1)
    return jnp.where(inside, signs[columns] * images[residues[columns], jnp.arange(m)[:, None]], 0)


def apply_band(band: Float[Array, "m w"], v: ConstraintVector) -> ConstraintVector:
    """A v, of the band alone."""
    m, half = v.shape[0], band.shape[1] // 2
    padded = jnp.pad(v, half)
    return sum((band[:, k] * padded[k : k + m] for k in range(band.shape[1])), jnp.zeros_like(v))


class Halving(eqx.Module):
    """One halving of cyclic reduction: the eliminated blocks' inverses and their couplings to the ones that stay."""

    inverse: Float[Array, "k b b"]
    after: Float[Array, "k b b"]  # A[2j, 2j + 1]
    before: Float[Array, "k b b"]  # A[2j + 1, 2j + 2]


class BandFactor(eqx.Module):
    """A solver for a banded, symmetric positive definite matrix."""

    halvings: list[Halving]
    last: Float[Array, "1 b b"]
    diagonal: ConstraintVector
    definite: Flag

    def solve(self, v: ConstraintVector) -> ConstraintVector:
        """A^-1 v, or with the diagonal of A alone where A is not positive definite."""
        block, size = self.last.shape[-1], v.shape[0]
        blocks = 2 ** len(self.halvings)
        rest = jnp.pad(v, (0, blocks * block - size)).reshape(blocks, block)
        eliminated = []
        for halving in self.halvings:
            kept, gone = rest[0::2], rest[1::2]
            partial = _times(halving.inverse, gone)
            rest = kept - _times(halving.after, partial) - _shift(_times(_turned(halving.before), partial))
            eliminated.append(gone)
        x = _times(self.last, rest)
        for halving, gone in zip(reversed(self.halvings), reversed(eliminated), strict=True):
            following = jnp.concatenate([x[1:], jnp.zeros_like(x[:1])])
            odd = gone - _times(_turned(halving.after), x) - _times(halving.before, following)
            x = jnp.stack([x, _times(halving.inverse, odd)], axis=1).reshape(-1, block)
        return jnp.where(self.definite, x.reshape(-1)[:size], v / self.diagonal)


def factorise_band(band: Float[Array, "m w"]) -> BandFactor:
    """Factorise; where the matrix is not safely positive definite, its diagonal is what is solved with."""
    m, half = band.shape[0], band.shape[1] // 2
    block = max(half, 1)
    count = 2 ** max(-(-m // block) - 1, 0).bit_length()
    # Rows of the identity fill up the last blocks.
    padding = jnp.zeros((count * block - m, band.shape[1]), band.dtype).at[:, half].set(1)
    rows = jnp.concatenate([band, padding]).reshape(count, block, -1)
    place = jnp.arange(block)
    offset = place[None, :] - place[:, None]

    def blocks(shift: int) -> Float[Array, "k b b"]:
        index = offset + shift * block + half
        inside = (index >= 0) & (index < band.shape[1])
        return jnp.where(inside[None], rows[:, place[:, None], jnp.clip(index, 0, band.shape[1] - 1)], 0)

    diagonal, upper = blocks(0), blocks(1).at[-1].set(0)  # the last block has no successor
    definite = jnp.array(True)
    halvings = []
    while diagonal.shape[0] > 1:
        inverse, sound = _inverse(diagonal[1::2])
        after, before = upper[0::2], upper[1::2]
        definite = definite & sound
        halvings.append(Halving(inverse, after, before))
        diagonal = (
            diagonal[0::2]
            - _product(_product(after, inverse), _turned(after))
            - _shift(_product(_product(_turned(before), inverse), before))
        )
        upper = -_product(_product(after, inverse), before)
    last, sound = _inverse(diagonal)
    own = band[:, half]
    return BandFactor(halvings, last, jnp.where(own > 0, own, 1), definite & sound)


def _inverse(blocks: Float[Array, "k b b"]) -> tuple[Float[Array, "k b b"], Flag]:
    """Inverses of positive definite blocks (identities where one is not), and whether all are."""
    size = blocks.shape[-1]
    if size == 1:
        sound = blocks > 0
        return 1 / jnp.where(sound, blocks, 1), jnp.all(sound)
    lower = jnp.linalg.cholesky(blocks)
    sound = jnp.all(jnp.isfinite(lower))
    identity = jnp.broadcast_to(jnp.eye(size, dtype=blocks.dtype), blocks.shape)
    inverse = jax.scipy.linalg.cho_solve((jnp.where(sound, lower, identity), True), identity)
    return inverse, sound


def _times(blocks: Float[Array, "k b b"], v: Float[Array, "k b"]) -> Float[Array, "k b"]:
    return jnp.sum(blocks * v[:, None, :], axis=-1)


def _product(a: Float[Array, "k b b"], b: Float[Array, "k b b"]) -> Float[Array, "k b b"]:
    return a * b if a.shape[-1] == 1 else a @ b


def _turned(blocks: Float[Array, "k b b"]) -> Float[Array, "k b b"]:
    return jnp.swapaxes(blocks, -1, -2)


def _shift(rows: Float[Array, "k ..."]) -> Float[Array, "k ..."]:
    """Each row one place later, a zero first."""
    return jnp.concatenate([jnp.zeros_like(rows[:1]), rows[:-1]])
