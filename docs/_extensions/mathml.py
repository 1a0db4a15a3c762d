"""Formulas as MathML, which browsers show by themselves: pages load no script from anywhere.

Equations with numbers keep them; what docutils' converter does not know is an error of the build.
"""

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number


def _mathml(node: nodes.Node, as_block: bool) -> str:
    return tex2mathml(node.astext(), as_block=as_block)


def inline(translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    translator.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def display(translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own."""
    number = ""
    if node.get("number"):
        number = f'<span class="eqno">({get_node_equation_number(translator, node)})</span>'
    translator.body.append(f'<div class="math-display">{number}{_mathml(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Take the place of MathJax."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
