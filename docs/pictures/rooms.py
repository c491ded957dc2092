"""The rooms of the library and the way of the data through them, as an SVG: `python docs/pictures/rooms.py`.

The layers are those of the contract in pyproject.toml.
"""

import tomllib
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
LEFT, BOXES, LANE, ROW, BOX, TOP = 78, 560, 70, 50, 38, 40
WHAT = {
    "cli": "commands: argument parsing only",
    "workspace": "a user's folder: configuration, run folders, what the commands do",
    "fleet": "one twin, many assets: scalars of each, alarms, report",
    "report": "pages about a fitted twin that open offline",
    "follow": "fleets of plants: lines in, estimates and alarms out",
    "check": "what to know before fitting",
    "monitor": "watching a plant",
    "identify": "what the data determine",
    "plot": "figures",
    "metrics": "predictions, errors, violations",
    "train": "loss, windows, methods, seeds, fit",
    "export": "C99, FMU, ONNX, StableHLO",
    "systems": "ready-made systems",
    "estimate": "Kalman filters on the manifold, smoother, noise levels, follower",
    "data": "readers, runs, windows, batches",
    "model": "fields, learned parts, unknowns, constraints, Twin, stepper",
    "numerics": "integrators, projections, step, rollout",
    "parallel": "many tasks, here or on Dask",
    "_core": "results, trees of arrays, calls by name",
    "typing": "names for arrays",
    "io": "files, tables, run folders",
}
FLOWS = {
    "fit": ("#1d4ed8", ["cli", "workspace", "data", "train", "model", "numerics"]),
    "simulate": ("#15803d", ["cli", "workspace", "model", "numerics"]),
    "export": ("#b45309", ["cli", "workspace", "export", "model", "numerics"]),
}


def layers() -> list[list[str]]:
    """The layers of the contract, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contract = next(each for each in settings["contracts"] if each["type"] == "layers")
    rows = [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]
    return [row for row in rows if row != ["_version"]]


def draw() -> str:
    """The picture as the text of an SVG file."""
    rows, parts, level = layers(), [], {}
    for index, row in enumerate(rows):
        width = BOXES / len(row) - 8
        for place, name in enumerate(row):
            x, y = LEFT + place * (width + 8), TOP + index * ROW
            middle = f'x="{x + width / 2:.0f}" text-anchor="middle"'
            level[name] = y + BOX / 2
            parts.append(
                f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{BOX}" rx="7" fill="#eef2ff" stroke="#3949ab"/>'
                f'<text {middle} y="{y + 16}" font-weight="600">{escape(name)}</text>'
                f'<text {middle} y="{y + 31}" font-size="11" fill="#475569">'
                f"{escape(WHAT[name])}</text>"
            )
    bottom = TOP + len(rows) * ROW
    parts.append(
        f'<path d="M 40 {TOP + 8} V {bottom - 20}" stroke="#6b7280" stroke-width="1.5" marker-end="url(#tip)"/>'
        f'<text x="28" y="{(TOP + bottom) / 2:.0f}" fill="#475569" text-anchor="middle" '
        f'transform="rotate(-90 28 {(TOP + bottom) / 2:.0f})">imports, downwards only</text>'
    )
    for lane, (flow, (colour, names)) in enumerate(FLOWS.items()):
        x = LEFT + BOXES + 34 + lane * LANE
        ys = [level[name] for name in names]
        parts.append(
            f'<text x="{x}" y="{TOP - 14}" text-anchor="middle" font-weight="600" fill="{colour}">{flow}</text>'
        )
        parts.append(f'<path d="M {x} {min(ys)} V {max(ys)}" stroke="{colour}" stroke-width="2"/>')
        for step, y in enumerate(ys, 1):
            parts.append(
                f'<circle cx="{x}" cy="{y}" r="10" fill="white" stroke="{colour}" stroke-width="2"/>'
                f'<text x="{x}" y="{y + 4}" text-anchor="middle" font-size="11" fill="{colour}">{step}</text>'
            )
    width = LEFT + BOXES + 34 + len(FLOWS) * LANE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom}" font-family="sans-serif" '
        'font-size="13" role="img" aria-label="Rooms of twinfold; each imports only the rooms below it">'
        '<defs><marker id="tip" markerWidth="9" markerHeight="9" refX="6" refY="3.5" orient="auto">'
        '<path d="M0,0 L7,3.5 L0,7 z" fill="#6b7280"/></marker></defs>'
        f'<rect width="{width}" height="{bottom}" fill="white"/>{"".join(parts)}</svg>\n'
    )


if __name__ == "__main__":
    (HERE / "rooms.svg").write_text(draw())
