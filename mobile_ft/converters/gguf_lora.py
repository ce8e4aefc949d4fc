"""`--to gguf-lora`: the adapter as a GGUF file, which llama.cpp loads with a GGUF of the base model."""

from pathlib import Path

from gguf import GGUFType, GGUFWriter, Keys

from mobile_ft.converters.fine_tuned import FineTuned
from mobile_ft.converters.gguf_data import written
from mobile_ft.converters.gguf_names import GgufNames, utf8

FILES = None


def write(model: FineTuned, out: Path) -> None:
    """Writes the file `out`, with all tensors in float32."""
    names = GgufNames(model.config)
    lora = model.bundle.lora
    writer = GGUFWriter(out, names.architecture)
    writer.add_type(GGUFType.ADAPTER)
    writer.add_name(utf8(f"{model.config.name} LoRA"))
    writer.add_base_model_count(1)
    writer.add_base_model_name(0, utf8(model.config.name))
    writer.add_string(Keys.Adapter.TYPE, "lora")
    # llama.cpp divides by the rank, but rsLoRA divides by its root.
    writer.add_float32(Keys.Adapter.LORA_ALPHA, lora.scale * lora.rank)
    for name, low_rank in model.low_ranks.items():
        experts, rank, _ = low_rank.a.shape
        a, factors = names.columns(name, low_rank.a.reshape(experts * rank, -1)), names.factors(name)
        rows = low_rank.b.reshape(-1, rank)
        b = names.rows(name, rows if factors is None else rows * factors[:, None])
        for tensor, part in zip(names.of(name), names.split(name, b), strict=True):
            several = (experts,) if experts > 1 else ()
            writer.add_tensor(f"{tensor}.lora_a", written(a.reshape(*several, rank, -1)))
            writer.add_tensor(f"{tensor}.lora_b", written(part.reshape(*several, -1, rank)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
