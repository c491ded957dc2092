"""A multibody mechanism with learned friction, integrated by RATTLE."""

import twinfold as tw


def twin() -> tw.Twin:
    mechanism = tw.Multibody(
        [2.0, 2.0],
        lambda q: 0.5 * (q @ q - 1),
        potential=lambda q: 19.62 * q[1],
        force=tw.Friction(lambda v: v, tw.Network(1, 1, 4, 1)),
    )
    return tw.Twin(mechanism, integrator=tw.Rattle(mechanism, substeps=2), constraint=tw.constraint_of(mechanism))
