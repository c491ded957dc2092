"""Names for pages and figures: the syntax of everything that a name passes on its way to a screen."""

JS = "window.__executed=1"
URL = "http://example.invalid/x"

HTML = (
    f"<script>{JS}</script>", f"<SCRIPT SRC={URL}></SCRIPT>", f"</title><script>{JS}</script>",
    f"</h1></main><script>{JS}</script>", f"<img src=x onerror={JS}>", f"<img src={URL}>", f"<img/src/onerror={JS}>",
    f"<svg onload={JS}>", f"<svg><script>{JS}</script></svg>", f"<svg><animate onbegin={JS} attributeName=x>",
    f'<svg><a xlink:href="javascript:{JS}"><text y=9>x', f"<svg><use href={URL}#x></svg>",
    f"<iframe srcdoc='<script>parent.{JS}</script>'>", f"<iframe src=javascript:parent.{JS}>", f"<iframe src={URL}>",
    f"<body onload={JS}>", f"<input autofocus onfocus={JS}>", f"<details open ontoggle={JS}>",
    f"<video><source onerror={JS}>", f"<audio src=x onerror={JS}>", f"<object data=javascript:{JS}>",
    f"<embed src={URL}>", f"<form action={URL}><button autofocus onfocus={JS}>", f"<base href={URL}>",
    f'<meta http-equiv=refresh content="0;url={URL}">', f"<link rel=stylesheet href={URL}>",
    f"<style>@import url({URL});</style>", f"<style>*{{background:url({URL})}}</style>",
    "<style>*{display:none}</style>", f"<marquee onstart={JS}>", f"<a href=javascript:{JS}>x</a>",
    f"<a href={URL}>x</a>", "<b>bold</b>", "a<br>b", "x<sub>1</sub><sup>2</sup>",
    f"<math><mtext></mtext><script>{JS}</script></math>", f"<template><script>{JS}</script></template>",
    f'<noscript><p title="</noscript><img src=x onerror={JS}>">',
    f"</textarea></select></table><script>{JS}</script>", "<plaintext>", f"<!--><script>{JS}</script>-->", "<!-- ",
    "-->", f"<![CDATA[<script>{JS}</script>]]>", "<?xml version='1.0'?>", "<?php system('touch executed') ?>",
    f"&lt;script&gt;{JS}&lt;/script&gt;", f"&#60;script&#62;{JS}&#60;/script&#62;", "&amp;lt;", "&", "a&b;c&nbsp;d",
    "<", ">", "x < y > z", "\uff1cscript\uff1e",
)  # fmt: skip
ATTRIBUTES = (
    f'" onmouseover="{JS}', f"' onmouseover='{JS}", f'"><script>{JS}</script>', f"'><script>{JS}</script>",
    f'" autofocus onfocus="{JS}" x="', f"` onmouseover={JS} `", f'x" style="background:url({URL})', f'" src="{URL}',
    '"', "'", '"""', "= x",
)  # fmt: skip
SCRIPTS = (
    f"</script><script>{JS}</script>", f"</SCRIPT ><script>{JS}</script>", "<!--<script>", "<!--<script></script>",
    f"\\u003c/script\\u003e<script>{JS}</script>", f'"}};{JS};//', f'"]}}]}};{JS};//', f"'+({JS})+'", f"${{{JS}}}",
    f"`${{{JS}}}`", f'\\";{JS};//', "\\", "\\\\", "\\u0000", "__proto__", "constructor", "toString", "hasOwnProperty",
    "length", "undefined", "null", "NaN", "true", "0", "[]", "{}", f'{{"toString": "{JS}"}}', f"*/{JS}/*", f"//{JS}",
)  # fmt: skip
TEMPLATES = (
    "{{ 7 * 7 }}", "{% for x in y %}", "{# comment #}", "{{ config.__class__.__mro__ }}",
    "{{''.__class__.__base__.__subclasses__()}}", "{% raw %}", "{% endblock %}", "#{7*7}", "<%= 7*7 %>",
    f"{{{{constructor.constructor('{JS}')()}}}}", "%{x}", "%{customdata[0]}", "%s%n%x", "{0}", "{x.__class__}",
    "%(name)s",
)  # fmt: skip
STYLES = (
    f"}}</style><script>{JS}</script>", f"expression({JS})", f";background:url({URL})", "red;}*{display:none}",
    f"@import '{URL}';", "-moz-binding:url(x)",
)  # fmt: skip
ADDRESSES = (
    f"javascript:{JS}", f"data:text/html,<script>{JS}</script>", URL, "//example.invalid/x", "file:///etc/passwd",
    "../../../etc/passwd", "/", "a/b\\c", "..", "CON", "~", "?a=b&c=d#e", f"%3Cscript%3E{JS}%3C/script%3E", "x#y",
    "%00",
)  # fmt: skip
SHELL = (
    "$(touch executed)", "`touch executed`", "; touch executed #", "| touch executed", "&& touch executed", "-rf",
    "--help", "* ?", "> executed", "$HOME", "!!",
)  # fmt: skip
FORMULAS = (
    "$x$", "$\\frac{1}{2}$", "$\\undefined{$", "$", "$$", "a$b$c$d", "\\$", "price [$]", "x_1^2",
    "$\\input{/etc/passwd}$", "\\write18{touch executed}", "_hidden", "=cmd|' /C calc'!A0", "@SUM(1)", "+1",
)  # fmt: skip
MARKUP = (
    "[bold]x[/bold]", "[/]", "[/b]", "[link=http://example.invalid]x[/link]", "speed [m/s]", "[@click=x]", ":smile:",
)  # fmt: skip
LETTERS = (
    "\u202egnp", "x\u0301", "a\u200bb", "\ufeffx", "\u540d\u524d", "\U0001f600", "a\u00a0b",
    "\u0645\u062b\u0627\u0644",
)  # fmt: skip

NAMES = (*HTML, *ATTRIBUTES, *SCRIPTS, *TEMPLATES, *STYLES, *ADDRESSES, *SHELL, *FORMULAS, *MARKUP, *LETTERS)
# With characters that a page, a table or a terminal cannot hold: refused before they are shown anywhere.
REFUSED = (
    "a\x00b", "a\x01b", "\x1b[2J", "\x1b]0;title\x07", "a\x08\x08b", "two\nlines", "two\r\nlines", "a\tb", "\x7f",
    "\x85", "\x9b31m", "a\u2028b", "a\u2029b", "\ud800", "\ufffe", "\uffff", "", " ", "x" * 201,
)  # fmt: skip
