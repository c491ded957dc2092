from ._numbers import format_number as format_number
from ._page import Section as Section
from ._page import Table as Table
from ._page import render_page as render_page
from ._twin_report import write_twin_report as write_twin_report
