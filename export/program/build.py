"""Traces and lowers the methods of a program. Imports torch and ExecuTorch, which takes seconds."""

from io import BytesIO

from mobile_ft.export.program.lower import lower
from mobile_ft.export.program.program import Program, ProgramSpec
from mobile_ft.export.program.trace import end_methods, per_layer_methods, unit_methods


def build_program(spec: ProgramSpec) -> Program:
    methods = end_methods(spec.config, spec.embed_format, spec.head_format, spec.max_seq_len)
    if spec.per_layer_formats is not None:
        methods |= per_layer_methods(spec.config, *spec.per_layer_formats, spec.max_seq_len)
    kinds = {}
    for unit in spec.units:
        traced = unit_methods(unit, spec.max_seq_len)
        methods |= traced.methods
        kinds[unit.kind] = traced.kind
    file = BytesIO()
    lower(methods).write_to_file(file)
    return Program(file.getvalue(), kinds, methods["head"].tokens)
