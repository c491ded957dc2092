"""The small dense linear algebra against NumPy, on both sides of the size where LAPACK takes over."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twinfold.numerics._linalg import dense as linalg
from twinfold.numerics._linalg.square import factorise_square

cholesky = jax.jit(linalg.cholesky)
factorise = jax.jit(linalg.factorise)
solve_general = jax.jit(linalg.solve_general)
solve_lower = jax.jit(linalg.solve_lower)
solve_lower_transposed = jax.jit(linalg.solve_lower_transposed)
complement = jax.jit(linalg.complement)
symmetric_solver = jax.jit(linalg.symmetric_solver, static_argnames="least")

SIZES = [1, 2, 3, 8, 9]  # LAPACK begins at 9; every Jacobian has two columns more than rows, and so one program a size
every_size = pytest.mark.parametrize("size", SIZES)


def random(size, *more):
    return np.random.default_rng(size).normal(size=(size, *more))


def triangle(size):
    return np.tril(random(size, size)) + 2 * np.eye(size)


@every_size
def test_triangular_solves(size):
    lower, b = triangle(size), random(size)
    np.testing.assert_allclose(solve_lower(lower, jnp.asarray(b)), np.linalg.solve(lower, b), rtol=1e-12)
    np.testing.assert_allclose(
        solve_lower_transposed(jnp.asarray(lower), jnp.asarray(b)), np.linalg.solve(lower.T, b), rtol=1e-12
    )


@every_size
def test_solves_can_be_transposed(size):
    """Reverse mode through a solve, linear in b, is the solve with the transpose."""
    lower, b = jnp.asarray(triangle(size)), jnp.asarray(random(size))
    (pulled,) = jax.linear_transpose(lambda b: solve_lower(lower, b), b)(b)
    np.testing.assert_allclose(pulled, np.linalg.solve(lower.T, b), rtol=1e-12)


@every_size
def test_cholesky(size):
    square = random(size, size)
    matrix = square @ square.T + np.eye(size)
    lower, definite = cholesky(jnp.asarray(matrix))
    assert definite
    np.testing.assert_allclose(lower, np.linalg.cholesky(matrix), rtol=1e-12, atol=1e-13)


@every_size
@pytest.mark.parametrize("smallest", [-1.0, -1e-8, 0.0])
def test_cholesky_detects_what_is_not_definite(size, smallest):
    axes = np.linalg.qr(random(size, size))[0]
    matrix = axes @ np.diag(np.r_[smallest, np.ones(size - 1)]) @ axes.T
    lower, definite = cholesky(jnp.asarray(0.5 * (matrix + matrix.T)))
    assert not definite
    np.testing.assert_array_equal(lower, np.eye(size))


@pytest.mark.parametrize("size", [3, 9])
def test_cholesky_of_an_indefinite_matrix_has_a_finite_gradient(size):
    matrix = jnp.asarray(-np.eye(size))
    gradient = jax.grad(lambda matrix: jnp.sum(cholesky(matrix)[0]))(matrix)
    np.testing.assert_array_equal(gradient, np.zeros((size, size)))


@every_size
def test_symmetric_solve(size):
    square = random(size, size)
    matrix, b = square @ square.T + np.eye(size), random(size)
    solver = symmetric_solver(jnp.asarray(matrix), least=1e-4)
    assert solver.definite
    np.testing.assert_allclose(solver.solve(jnp.asarray(b)), np.linalg.solve(matrix, b), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("smallest", [-1.0, -1e-8, 0.0])
def test_symmetric_solve_with_magnitudes_of_pivots(size, smallest):
    """L |D| L' in place of L D L', with no pivot below the least: a direction of descent, whatever the signs."""
    axes = np.linalg.qr(random(size, size))[0]
    matrix = axes @ np.diag(np.r_[smallest, np.ones(size - 1)]) @ axes.T
    matrix = 0.5 * (matrix + matrix.T)
    lower, rest = np.eye(size), matrix.copy()
    pivots = np.zeros(size)
    for k in range(size):
        pivots[k] = rest[k, k] if rest[k, k] > 2.3e-14 else max(abs(rest[k, k]), 1e-4)
        lower[k + 1 :, k] = rest[k + 1 :, k] / pivots[k]
        rest = rest - pivots[k] * np.outer(lower[:, k], lower[:, k])
    solver = symmetric_solver(jnp.asarray(matrix), least=1e-4)
    assert not solver.definite
    np.testing.assert_allclose(solver.factor @ (lower * pivots @ lower.T), np.eye(size), atol=1e-9)


def test_symmetric_solve_has_second_derivatives():
    """Newton projections are differentiated through it more than once."""
    square = random(3, 3)
    matrix, b = jnp.asarray(square @ square.T + np.eye(3)), jnp.asarray(random(3))

    def quadratic(s):
        return b @ symmetric_solver(matrix + s * jnp.eye(3), least=1e-4).solve(b)

    inverse = np.linalg.inv(matrix)
    exact = 2 * b @ inverse @ inverse @ inverse @ b
    np.testing.assert_allclose(jax.jit(jax.grad(jax.grad(quadratic)))(0.0), exact, rtol=1e-10)


@every_size
def test_general_solve(size):
    """Unsymmetric, near a positive definite matrix: what the frozen iteration solves."""
    square = random(size, size)
    matrix = square @ square.T + np.eye(size) + 0.1 * random(size, size)
    b = random(size)
    found = solve_general(jnp.asarray(matrix), jnp.asarray(b))
    np.testing.assert_allclose(found, np.linalg.solve(matrix, b), rtol=1e-10, atol=1e-12)


@every_size
def test_factorise(size):
    jacobian = random(size, size + 2)
    space = factorise(jnp.asarray(jacobian))
    assert not space.singular
    np.testing.assert_allclose(space.factor @ space.q, jacobian, rtol=0, atol=1e-14 * size)
    np.testing.assert_allclose(space.q @ space.q.T, np.eye(size), rtol=0, atol=1e-14)
    lower = space.factor if space.order is None else space.order @ space.factor
    np.testing.assert_array_equal(lower, np.tril(lower))
    b, v = random(size), random(size + 2)
    inverse = np.linalg.pinv(jacobian)
    np.testing.assert_allclose(space.min_norm(jnp.asarray(b)), inverse @ b, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(space.multipliers(jnp.asarray(v)), inverse.T @ v, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(space.tangent(jnp.asarray(v)), v - inverse @ (jacobian @ v), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [2, 3, 8, 9])
def test_nearly_parallel_rows_keep_an_orthogonal_factor(size):
    """cond(G G') is about 1e16: a Cholesky factor of it would have no digit left."""
    jacobian = random(size, size + 2)
    jacobian[-1] = jacobian[0] + 1e-8 * jacobian[-1]
    assert np.linalg.cond(jacobian) ** 2 > 1e15
    space = factorise(jnp.asarray(jacobian))
    assert not space.singular
    np.testing.assert_allclose(space.q @ space.q.T, np.eye(size), rtol=0, atol=1e-14)
    b = jacobian @ random(size + 2)
    left = jacobian @ np.asarray(space.min_norm(jnp.asarray(b))) - b
    assert np.linalg.norm(left) <= 1e-13 * np.linalg.norm(jacobian) * np.linalg.norm(space.min_norm(jnp.asarray(b)))


DEPENDENT = {
    "zero": lambda rows: 0 * rows[0],
    "repeated": lambda rows: 3 * rows[0],
    "in other units": lambda rows: 1e-9 * rows[0],
    "a sum": lambda rows: rows[0] - 2 * rows[1],
}


@pytest.mark.parametrize("kind", list(DEPENDENT))
@pytest.mark.parametrize("size", [3, 8, 9])
def test_dependent_rows_are_dropped(size, kind):
    """In the middle: those above and below are kept, and for a consistent system nothing is lost."""
    jacobian = random(size, size + 2)
    jacobian[2:3] = DEPENDENT[kind](jacobian)
    space = factorise(jnp.asarray(jacobian))
    dropped = np.flatnonzero(~np.asarray(space.kept))
    assert dropped.size == 1
    assert space.singular
    assert space.rank == size - 1
    np.testing.assert_allclose(space.q @ space.q.T, np.diag(np.arange(size) < size - 1), rtol=0, atol=1e-14)
    np.testing.assert_allclose(space.factor @ space.q, jacobian, rtol=0, atol=1e-14 * size)
    b, v = jacobian @ random(size + 2), random(size + 2)
    inverse = np.linalg.pinv(jacobian, rcond=1e-13)
    np.testing.assert_allclose(space.min_norm(jnp.asarray(b)), inverse @ b, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(space.tangent(jnp.asarray(v)), v - inverse @ (jacobian @ v), rtol=0, atol=1e-12)
    multiplier = np.asarray(space.multipliers(jnp.asarray(v)))
    assert multiplier[dropped[0]] == 0
    np.testing.assert_allclose(jacobian.T @ multiplier, v - space.tangent(jnp.asarray(v)), rtol=0, atol=1e-11)


@pytest.mark.parametrize(("dtype", "smallest"), [(np.float32, 1e-4), (np.float64, 1e-10)])
@pytest.mark.parametrize("size", [2, 9])
def test_rank_is_decided_by_dtype(size, dtype, smallest):
    """A row within rounding of another depends on it; one that differs by more does not."""
    jacobian = random(size, size + 2).astype(dtype)
    other = jacobian[-1].copy()
    jacobian[-1] = jacobian[0] + dtype(smallest) * other
    assert not factorise(jnp.asarray(jacobian)).singular
    jacobian[-1] = jacobian[0] * (1 + np.finfo(dtype).eps * np.arange(size + 2))
    assert factorise(jnp.asarray(jacobian)).singular


def test_more_rows_than_columns():
    """Bounds on every state beside an equation: as many are kept as there are states."""
    space = factorise(jnp.asarray(random(11, 4)))
    assert space.rank == 4
    np.testing.assert_array_equal(np.flatnonzero(np.abs(space.q).sum(axis=1)), np.arange(4))
    np.testing.assert_allclose(space.q[:4] @ space.q[:4].T, np.eye(4), rtol=0, atol=1e-14)


@every_size
def test_volume(size):
    jacobian = random(size, size + 2)
    unit = jacobian / np.linalg.norm(jacobian, axis=1, keepdims=True)
    expected = np.sqrt(np.linalg.det(unit @ unit.T))
    np.testing.assert_allclose(factorise(jnp.asarray(jacobian)).volume, expected, rtol=1e-10)


@pytest.mark.parametrize(("size", "columns"), [(4, 3), (8, 5), (11, 4), (10, 12)])
def test_which_rows_are_dropped_does_not_depend_on_their_order(size, columns):
    """So that a correction is the same where dependent rows do not agree, as to second order they never do."""
    jacobian, b = random(size, 3) @ random(3, columns), random(size)
    kept, correction = [], []
    for order in (np.arange(size), np.arange(size)[::-1], np.random.default_rng(0).permutation(size)):
        space = factorise(jnp.asarray(jacobian[order]))
        kept.append(np.sort(order[np.asarray(space.kept)]))
        correction.append(np.asarray(space.min_norm(jnp.asarray(b[order]))))
    assert len(kept[0]) == 3
    np.testing.assert_array_equal(kept, [kept[0]] * 3)
    np.testing.assert_allclose(correction, [correction[0]] * 3, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [2, 9])
def test_factorise_of_a_singular_matrix_has_finite_derivatives(size):
    jacobian = jnp.zeros((size, size + 2))
    derivative = jax.jit(jax.jacfwd(lambda jacobian: factorise(jacobian).min_norm(jnp.ones(size))))(jacobian)
    assert np.isfinite(derivative).all()


@pytest.mark.parametrize("unit", [1e-150, 1e-9, 1e9, 1e150])
@pytest.mark.parametrize("size", [2, 9])
def test_rank_does_not_depend_on_units(size, unit):
    """One constraint in other units than the rest."""
    jacobian = random(size, size + 2)
    jacobian[0] *= unit
    space = factorise(jnp.asarray(jacobian))
    assert not space.singular
    np.testing.assert_allclose(space.q @ space.q.T, np.eye(size), rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [5, 12])
def test_solving_with_a_square_matrix(size):
    rng = np.random.default_rng(size)
    matrix = rng.normal(size=(size, size))
    matrix[np.diag_indices(size)] = 0  # as in a circuit: nothing to divide by without pivoting
    matrix = 10.0 ** rng.uniform(-8, 8, size)[:, None] * matrix * 10.0 ** rng.uniform(-8, 8, size)
    direction = rng.normal(size=(size, size)) * np.abs(matrix)

    def inverse(matrix):
        factors = factorise_square(matrix)
        return jax.vmap(factors.solve, 1, 1)(jnp.eye(size)), factors.singular

    invert = jax.jit(lambda matrix, along: jax.jvp(inverse, (matrix,), (along,)))
    (found, singular), (change, _) = invert(matrix, direction)
    exact = np.linalg.inv(matrix)
    assert not singular
    np.testing.assert_allclose(found, exact, rtol=1e-11)
    np.testing.assert_allclose(change, -exact @ direction @ exact, rtol=1e-8)
    matrix[-1] = matrix[0] * 3.0
    (found, singular), (change, _) = invert(matrix, direction)
    assert singular
    assert np.all(np.asarray(found) == 0)
    assert np.all(np.isfinite(change))


@pytest.mark.parametrize("size", [4, 10])
def test_the_order_of_nearly_dependent_rows_does_not_matter(size):
    """A row that is within 1e-9 of another is not taken in place of a better one that comes later."""
    rng = np.random.default_rng(0)
    good = rng.normal(size=(size - 1, size - 1))
    close = good[0] + 1e-9 * rng.normal(size=size - 1)
    b_of = rng.normal(size=size - 1)
    for rows in ([good[0], close, *good[1:]], [*good, close], [close, *good]):
        jacobian = np.array(rows)
        space = factorise(jnp.asarray(jacobian))
        assert space.rank == size - 1
        np.testing.assert_allclose(space.min_norm(jnp.asarray(jacobian @ b_of)), b_of, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("m", "n"), [(1, 2), (2, 3), (1, 4), (2, 4), (3, 8), (7, 8)])
def test_complement(m, n):
    """Together with the rows that it completes it is an orthogonal matrix, also beside the axes."""
    for rows in (random(m, n), np.eye(m, n), -np.eye(m, n) + 1e-9 * random(m, n)):
        q = np.linalg.qr(rows.T)[0].T
        whole = np.concatenate([q, complement(jnp.asarray(q))])
        np.testing.assert_allclose(whole @ whole.T, np.eye(n), atol=1e-14)
