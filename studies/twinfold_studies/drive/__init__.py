"""Drive cycles of a Panasonic 18650PF cell: `records` of the measurements, `models` of the comparison, its `scores`."""
