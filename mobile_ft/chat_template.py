"""A model's chat template: Jinja, out of a file that anybody may have written.

It runs in Jinja's sandbox, where a template changes and learns nothing of what is outside. That does not keep it from
taking all time and memory, so whatever takes some is paid for out of a budget: each run of a part of the template, each
character that is made, each item that is looked at. A template may use only what has a price here, which is all that
those of published models use. Nothing is timed: what renders on one machine renders on every other.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sized
from datetime import datetime
from types import GeneratorType
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import Namespace, _PassArg
from jinja2.visitor import NodeTransformer

# Some ten nanoseconds each at most, and a few bytes of memory.
_BUDGET = 50_000_000
_NODE = 4  # of the template, each time it runs
_CALL = 50  # of a function, a filter or an operator
_ITEM = 64  # of a list or dict, made or looked at
_SORTED = 20  # times the price of looking

_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"

_MOST_CHARACTERS = 1 << 18  # of a template
_MOST_BITS = 1024  # of an integer
_MOST_DEPTH = 64  # of lists within lists
_MOST_INDENT = 16  # of JSON
_MOST_STYLE = 100  # characters of a date's format

_NODES = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.Macro, nodes.CallBlock),
    *(nodes.FilterBlock, nodes.With, nodes.Scope, nodes.Assign, nodes.AssignBlock, nodes.NSRef, nodes.Break),
    *(nodes.Continue, nodes.Name, nodes.Const, nodes.Tuple, nodes.List, nodes.Dict, nodes.Pair, nodes.Keyword),
    *(nodes.CondExpr, nodes.Filter, nodes.Test, nodes.Call, nodes.Getitem, nodes.Getattr, nodes.Slice, nodes.Concat),
    *(nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos),
    *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow),
)
_CHEAP_FILTERS = ("length", "count", "first", "last", "default", "d", "attr", "abs")
_FILTERS = ("capitalize", "float", "int", "lower", "string", "trim", "upper")
# Of a text, these make a list of its characters or words first.
_LIST_FILTERS = ("items", "join", "list", "map", "reject", "rejectattr", "select", "selectattr", "title")
_SORTING_FILTERS = ("sort", "dictsort", "unique", "min", "max")
_TESTS = (
    *("boolean", "callable", "defined", "false", "float", "integer", "iterable", "mapping", "none", "number"),
    *("sameas", "sequence", "string", "true", "undefined"),
)
_NUMBER_TESTS = ("odd", "even", "divisibleby")
_COMPARING_TESTS = (
    *("==", "eq", "equalto", "!=", "ne", "<", "lt", "lessthan", "<=", "le", ">", "gt", "greaterthan", ">=", "ge"),
    *("in", "lower", "upper"),
)
_METHODS: dict[type, tuple[str, ...]] = {
    dict: ("get", "items", "keys", "values"),
    list: ("index", "count"),
    tuple: ("index", "count"),
}
_TEXT_METHODS = (
    *("capitalize", "count", "endswith", "find", "index", "isalnum", "isalpha", "isdigit", "islower", "isnumeric"),
    *("isspace", "isupper", "lower", "partition", "removeprefix", "removesuffix", "startswith", "title", "upper"),
)
_SEARCHING_METHODS = ("lstrip", "rfind", "rindex", "rpartition", "rstrip", "strip")  # for each character anew
_SPLITTING_METHODS = ("rsplit", "split", "splitlines")


Message = dict[str, str]  # "role" and "content"


def compile_template(source: str) -> Template:
    """A template in the environment of Hugging Face's apply_chat_template. Raises ValueError where it is none."""
    if len(source) > _MOST_CHARACTERS:
        raise ValueError(f"{len(source)} characters, more than {_MOST_CHARACTERS}")
    environment = _Environment()
    try:
        code = environment.compile(_Pricing().visit(environment.parse(source)))
        return Template.from_code(environment, code, environment.make_globals(None))
    except Exception as error:  # Jinja's parser and Python's compiler have limits of their own
        raise ValueError(_in_words(error)) from error


def parse_template(source: str) -> nodes.Template:
    """What a template that compiles is made of."""
    return _Environment().parse(source)


def render(template: Template, variables: Mapping[str, Any]) -> str:
    """Raises ValueError where the template fails, refuses the messages or takes too much time or memory."""
    try:
        return template.render(variables)
    except Exception as error:  # whatever operators and functions raise
        raise ValueError(_in_words(error)) from error


def _in_words(error: Exception) -> str:
    return str(error) if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}"


class _Budgeted(Context):
    """The variables of one rendering, and what is left of its budget."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.left = _BUDGET

    def spend(self, price: int) -> None:
        self.left -= price
        if not self.left >= 0:  # nor NaN
            raise TemplateError("it takes too much time or memory")

    def spend_on(self, value: Any, times: int = 1) -> None:
        """The price of looking at all that is in a value, as its text does, or a comparison."""
        if isinstance(value, str):
            return self.spend(len(value) * times)
        items = [value]
        for _ in range(_MOST_DEPTH):
            inner: list[Iterable[Any]] = []
            for item in items:
                if isinstance(item, str):
                    self.spend(len(item) * times)
                elif isinstance(item, dict):
                    inner += [item.keys(), item.values()]
                elif isinstance(item, list | tuple | _VIEWS):
                    inner.append(item)
            if not inner:
                return None
            items = []
            for each in inner:
                self.spend((1 + _length(each)) * times)
                items += each
        raise TemplateError(f"lists within lists, deeper than {_MOST_DEPTH}")


_VIEWS: Any = type({}.keys()) | type({}.values()) | type({}.items())


def _length(value: Any) -> int:
    """The price of making a value of others. Raises TemplateError for an integer that is no longer quick to use."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list | tuple | dict | _VIEWS):
        return _ITEM * len(value)
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise TemplateError(f"an integer of more than {_MOST_BITS} bits")
    return 0


class _Pricing(NodeTransformer):
    """Has a template pay where Jinja asks nobody, and refuses what has no price."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        if type(node) not in _NODES:
            raise TemplateError(f"line {node.lineno}: {type(node).__name__} is not supported")
        return super().visit(node, *args, **kwargs)

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 (Jinja's names)
        body_price = _price_of(node)
        self.generic_visit(node)
        node.body.insert(0, _paying(body_price))
        if node.test is not None:  # also decides without running the body
            node.test = nodes.And(_paying(body_price).node, node.test)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._pay_for_body(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        return self._pay_for_body(node)

    def _pay_for_body(self, node: nodes.Macro | nodes.CallBlock) -> nodes.Node:
        price = _price_of(node)
        self.generic_visit(node)
        node.body.insert(0, _paying(price))
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        sides = [node.expr, *(operand.expr for operand in node.ops)]
        if len(sides) == 2 and node.ops[0].op in ("eq", "ne") and any(isinstance(x, nodes.Const) for x in sides):
            return node  # takes no longer than the constant is
        node.expr = _filtered(node.expr, "_paid")
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, "_paid")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_filtered(part, "_paid") for part in node.nodes]
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.key = _filtered(node.key, "_paid")
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "_made") if isinstance(node.arg, nodes.Slice) else node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        """A list where it is a value, which is no key: the hash of tuples within tuples can take forever."""
        self.generic_visit(node)
        return nodes.List(node.items, lineno=node.lineno) if node.ctx == "load" else node

    def visit_Const(self, node: nodes.Const) -> nodes.Node:  # noqa: N802
        _length(node.value)
        return node


def _price_of(part: nodes.Node) -> int:
    text = sum(len(data.data) for data in part.find_all(nodes.TemplateData))
    return text + _NODE * sum(1 for _ in part.find_all(nodes.Node))


def _paying(price: int) -> nodes.ExprStmt:
    return nodes.ExprStmt(_filtered(nodes.Const(price), "_pay"))


def _filtered(value: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)


@pass_context
def _pay(context: _Budgeted, price: Any) -> bool:
    context.spend(abs(price))  # a template may know this filter's name, and pay for nothing but not get
    return True


@pass_context
def _paid(context: _Budgeted, value: Any) -> Any:
    context.spend_on(value)
    return value


@pass_context
def _made(context: _Budgeted, value: Any) -> Any:
    context.spend(_length(value))
    return value


def _priced(function: Any, pay: Callable[..., None]) -> Callable[..., Any]:
    """A filter or test that first pays for its arguments, by `pay` for the value, and then for its result."""
    pass_arg = _PassArg.from_obj(function)

    @pass_context
    def priced(context: _Budgeted, value: Any, *args: Any, **kwargs: Any) -> Any:
        context.spend(_CALL)
        given = [*args, *kwargs.values()]
        for arg in given:
            context.spend_on(arg)
        pay(context, value, given)
        known = {_PassArg.context: context, _PassArg.eval_context: context.eval_ctx}
        passed = [] if pass_arg is None else [known.get(pass_arg, context.environment)]
        result = function(*passed, value, *args, **kwargs)
        if isinstance(result, GeneratorType):
            result = list(result)
        context.spend(_length(result))
        return result

    return priced


def _pay_nothing(context: _Budgeted, value: Any, args: list[Any]) -> None:
    pass


def _pay_for_value(context: _Budgeted, value: Any, args: list[Any]) -> None:
    """For the value, and for the arguments once more with each of its items, or characters."""
    context.spend_on(value)
    if isinstance(value, Sized):
        context.spend(len(value) * (1 + sum(len(arg) for arg in args if isinstance(arg, str))))


def _pay_for_list(context: _Budgeted, value: Any, args: list[Any]) -> None:
    _pay_for_value(context, value, args)
    if isinstance(value, Sized):
        context.spend(_ITEM * len(value))


def _pay_for_sorting(context: _Budgeted, value: Any, args: list[Any]) -> None:
    context.spend_on(value, _SORTED)
    _pay_for_list(context, value, args)


def _need_number(context: _Budgeted, value: Any, args: list[Any]) -> None:
    if not isinstance(value, int | float):  # % formats text
        raise TemplateError(f"a number is wanted, this is a {type(value).__name__}")


@pass_context
def _replace(context: _Budgeted, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    context.spend_on([value, old, new])
    text, old, new = str(value), str(old), str(new)
    _pay_for_replacing(context, text, old, new)
    return text.replace(old, new, -1 if count is None else count)


def _pay_for_replacing(context: _Budgeted, text: str, old: str, new: str) -> None:
    context.spend(_CALL + 2 * len(text) + (text.count(old) + 1) * len(new))


@pass_context
def _reverse(context: _Budgeted, value: Any) -> Any:
    context.spend(_CALL + _length(value))
    return value[::-1] if isinstance(value, str) else list(value)[::-1]


@pass_context
def _indent(context: _Budgeted, value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    context.spend_on([value, width])
    text = str(value)
    lines = 2 + sum(map(text.count, _LINE_ENDS))
    context.spend(lines * (_CALL + (len(width) if isinstance(width, str) else abs(width))))
    return FILTERS["indent"](text, width, first, blank)


@pass_context
def _to_json(
    context: _Budgeted,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """As Transformers has it: Jinja's own escapes HTML characters, which no model was trained on."""
    context.spend_on([separators, indent])
    width = 0 if indent is None else len(indent) if isinstance(indent, str) else abs(indent)
    if max(width, len(str(separators))) > _MOST_INDENT:
        raise TemplateError(f"tojson with more than {_MOST_INDENT} characters of indent or separators")
    context.spend_on(value, 12 + width)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(style: str) -> str:
    if len(style) > _MOST_STYLE:
        raise TemplateError(f"a date in more than {_MOST_STYLE} characters")
    return datetime.now().strftime(style)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


class _Namespace(Namespace):
    """One whose text is not that of all it holds."""

    def __repr__(self) -> str:
        return "<Namespace>"


_GLOBALS = {
    "dict": dict,
    "namespace": _Namespace,
    "raise_exception": _raise_exception,
    "range": range,
    "strftime_now": _strftime_now,
}
_FUNCTIONS = tuple(_GLOBALS.values())


class _Generation(Extension):
    """Templates may mark the assistant's text with {% generation %}; here the mark means nothing."""

    tags = {"generation"}  # noqa: RUF012 (as jinja2 declares it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%", "**"])
    context_class = _Budgeted

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _Generation],
            optimized=False,  # which would work out constants before there is a budget
            finalize=_paid,
        )
        self.globals = dict(_GLOBALS)
        self.filters = (
            {name: _priced(FILTERS[name], _pay_nothing) for name in _CHEAP_FILTERS}
            | {name: _priced(FILTERS[name], _pay_for_value) for name in _FILTERS}
            | {name: _priced(FILTERS[name], _pay_for_list) for name in _LIST_FILTERS}
            | {name: _priced(FILTERS[name], _pay_for_sorting) for name in _SORTING_FILTERS}
            | {"indent": _indent, "replace": _replace, "reverse": _reverse, "tojson": _to_json}
            | {"safe": _priced(FILTERS["string"], _pay_for_value)}  # nothing is escaped here
            | {"_pay": _pay, "_paid": _paid, "_made": _made}  # what _Pricing puts in
        )
        self.tests = (
            {name: _priced(TESTS[name], _pay_nothing) for name in _TESTS}
            | {name: _priced(TESTS[name], _need_number) for name in _NUMBER_TESTS}
            | {name: _priced(TESTS[name], _pay_for_value) for name in _COMPARING_TESTS}
        )

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, tuple):  # as in visit_Tuple; macros and dicts have tuples too
            raise TemplateError("a key that is a tuple")
        return super().getitem(obj, argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        context.spend(_CALL)
        if operator == "+":
            context.spend(_length(left) + _length(right))
        elif operator == "*" and not isinstance(left, float) and not isinstance(right, float):
            number, other = (left, right) if isinstance(left, int) else (right, left)
            if isinstance(other, int):
                _check_bits(number.bit_length() + other.bit_length())
            elif isinstance(number, int):
                context.spend(_length(other) * max(0, number))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() * max(0, right))
        elif operator == "%" and isinstance(left, str):
            raise TemplateError("text formatted with % is not supported")
        result = super().call_binop(context, operator, left, right)
        _length(result)
        return result

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: B902, N805
        __context.spend(_CALL + _ITEM * (len(args) + len(kwargs)))
        if not isinstance(__obj, Macro):
            _pay_for_call(__context, __obj, args, {k: v for k, v in kwargs.items() if k not in _OF_JINJA})
        result = super().call(__context, __obj, *args, **kwargs)
        __context.spend(_length(result))
        return result


def _check_bits(bits: int) -> None:
    if bits > _MOST_BITS:
        raise TemplateError(f"an integer of more than {_MOST_BITS} bits")


_OF_JINJA = ("_loop_vars", "_block_vars")  # arguments of every call


def _pay_for_call(context: _Budgeted, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises TemplateError where a function has no price."""
    for arg in (*args, *kwargs.values()):
        context.spend_on(arg)
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if isinstance(owner, str):
        _pay_for_method(context, owner, name, [*args, *kwargs.values()])
    elif name in _METHODS.get(type(owner), ()):
        if name in ("index", "count"):
            context.spend_on(owner)
    elif function is range:
        context.spend(_ITEM * len(range(*args)))
    elif not isinstance(function, LoopContext) and not isinstance(owner, LoopContext) and function not in _FUNCTIONS:
        raise TemplateError(f"{name or type(function).__name__}() is not supported")


def _pay_for_method(context: _Budgeted, text: str, name: str, args: list[Any]) -> None:
    texts = [arg for arg in args if isinstance(arg, str)]
    if name in _TEXT_METHODS:
        context.spend(len(text))
    elif name in _SEARCHING_METHODS:
        context.spend(len(text) * (1 + sum(map(len, texts))))
    elif name in _SPLITTING_METHODS:
        parts = text.count(texts[0]) if texts and texts[0] else len(text)
        context.spend(len(text) * (len(texts[0]) if texts and name == "rsplit" else 1) + 2 * _ITEM * parts)
    elif name == "replace" and len(texts) > 1:
        _pay_for_replacing(context, text, *texts[:2])
    elif name == "join" and isinstance(args[0], Sized):
        context.spend((_ITEM + len(text)) * len(args[0]))
    else:
        raise TemplateError(f"{name}() of a text is not supported")
