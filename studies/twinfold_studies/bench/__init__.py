"""The machinery of the comparison.

What is compared: `contenders` (models), `problems` (systems and their data), `protocols` (of training), `paper`
(published numbers). How it is computed: a `job` is one model of one system under one protocol; the `queue` runs jobs,
the `store` and the `cache` hold results, which `travel` carries to other machines. How it is reported: an
`experiment` derives findings from results with the help of `tables`, `figures` and `timing`; the `runner` runs it,
and `report` writes its files. The demonstration of the README is `demo`, with `demo_summary`, `demo_report` and
`demo_display`.
"""
