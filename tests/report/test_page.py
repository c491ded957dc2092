"""The page API: whatever is given appears on the page, and never as markup."""

import html
import json
import re

import jinja2
import numpy as np
import pytest
from support.report_case import HOSTILE

from twinfold.report import Section, Table, format_number, render_page
from twinfold.report._numbers import format_estimate
from twinfold.report._page import _environment, render


@pytest.fixture(scope="module")
def page():
    """Every field holds a script, with a number that tells the fields apart."""
    names = (f"{HOSTILE}{number}" for number in range(100, 120))
    table = Table([next(names), next(names)], [[next(names), next(names)], ["row", "7.5"]], best=[(1, 1)], indented=[1])
    section = Section(
        next(names),
        image=next(names),
        table=table,
        pairs=[(next(names), next(names))],
        code=next(names),
        note=next(names),
    )
    return render_page(
        next(names),
        kind=next(names),
        introduction=next(names),
        summary=[next(names)],
        sections=[section],
        footer=next(names),
    )


def test_every_field_appears_escaped(page):
    assert "<script" not in page
    found = {int(number) for number in re.findall(r"(?:&lt;/script&gt;|%3C/script%3E)(\d+)", page)}
    assert found == set(range(100, 115))


def test_the_best_cell_is_highlighted_and_the_row_indented(page):
    assert '<tr class="indented"><th scope="row">row</th><td class="best">7.5</td></tr>' in page
    assert page.count('class="best"') == page.count('class="indented"') == 1


def test_a_page_is_complete_and_offline(page):
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert 'name="viewport"' in page
    assert not re.search(r"(?:src|href)=['\"]?(?:https?:)?//", html.unescape(page))
    assert "--accent" in page  # the style is inside


def test_what_is_left_out_leaves_no_trace():
    page = render_page("title", kind="kind", sections=[Section("empty")])
    body = page[page.index("<main>") :]
    for tag in ("<table", "<img", "<pre", "<ul", "<footer", "<figure"):
        assert tag not in body


def test_a_missing_value_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="title"):
        render("page.html", kind="kind")


def test_data_of_a_script_cannot_end_it_and_hold_no_nan():
    template = _environment().from_string("<script>{{ data | tojson }}</script>")
    content = template.render(data=[HOSTILE]).removeprefix("<script>").removesuffix("</script>")
    assert "<" not in content
    assert json.loads(content) == [HOSTILE]
    with pytest.raises(ValueError, match="JSON compliant"):
        template.render(data=float("nan"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (3.14159e-4, "3.1e-4"),
        (0.314, "0.31"),
        (12.6, "13"),
        (123456.0, "1.2e5"),
        (-0.314, "-0.31"),
        (-2e-7, "-2.0e-7"),
        (np.inf, "inf"),
        (-np.inf, "-inf"),
        (np.nan, "-"),
    ],
)
def test_numbers_are_short(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(98.765, "98.8"), (99.96, "100"), (1.2345, "1.23"), (0.012345, "0.0123"), (1.2345e-4, "1.23e-4"), (1234.5, "1234"),
     (-0.5, "-0.500"), (9.996, "10.0"), (123456.0, "1.23e5")],
)  # fmt: skip
def test_numbers_have_three_digits_where_asked(value, text):
    assert format_number(value, 3) == text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [(2.00802, 0.0163, "2.008"), (6.219812, 0.0012, "6.2198"), (1523.4, 213.0, "1520"), (3.9758, 152.0, "4.0"),
     (-0.019713, 0.01, "-0.020"), (1.2e-7, 3e-9, "1.200e-07"), (31.41592, np.nan, "31.416"),
     (31.41592, np.inf, "31.416"), (0.0, 1.0, "0")],
)  # fmt: skip
def test_an_estimate_ends_with_the_second_digit_of_its_error(value, error, text):
    assert format_estimate(value, error) == text
