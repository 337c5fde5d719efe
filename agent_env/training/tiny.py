"""A model of about 150,000 parameters that learns to use tools on one CPU core.

Qwen3's architecture and tool-call syntax, so that trainers treat it like the real thing; its
tokenizer is trained on the spot on the conversations it will see. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CONTROL = (PAD, START, END)
MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""One token each, but not special ones: a parser must still see them in decoded text."""

VOCABULARY = 640
CONTEXT_TOKENS = 1024

# A tool is shown as `name(argument,argument)`: the real template's JSON schemas are three times
# the tokens of the whole conversation, and this model can't read them anyway.
TEMPLATE = """\
{%- macro turn(role, text) -%}<|im_start|>{{ role }}
{{ text }}<|im_end|>
{% endmacro -%}
{%- if tools -%}
{%- set ns = namespace(shown=[]) -%}
{%- for tool in tools -%}
{%- set f = tool.function -%}
{%- set ns.shown = ns.shown + [f.name ~ '(' ~ (f.parameters.properties | join(',')) ~ ')'] -%}
{%- endfor -%}
{{ turn('system', ns.shown | join(' ')) }}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
{{ turn('user', '<tool_response>\\n' ~ message.content ~ '\\n</tool_response>') }}
{%- else -%}
{%- set ns = namespace(text=message.content or '') -%}
{%- for call in message.tool_calls or [] -%}
{%- set body = {'name': call.function.name, 'arguments': call.function.arguments} -%}
{%- set ns.text = ns.text ~ '<tool_call>\\n' ~ (body | tojson) ~ '\\n</tool_call>' -%}
{%- endfor -%}
{{ turn(message.role, ns.text) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""

Message = dict[str, Any]


def build_tokenizer(
    conversations: Iterable[Sequence[Message]], tools: Sequence[Any]
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer trained on those conversations as the template renders them."""
    bpe = Tokenizer(models.BPE())
    # Single digits: numbers that were never seen still read the same way as those that were.
    digits = pre_tokenizers.Digits(individual_digits=True)
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([digits, letters])
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(_rendered(bpe, conversations, tools), _bpe_trainer())
    bpe.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL])
    bpe.add_tokens([AddedToken(text, special=False, normalized=False) for text in MARKS])
    tokenizer = _wrapped(bpe)
    if find_spec("trl"):  # verl and SkyRL parse what the model says themselves
        # Without it TRL only takes templates that equal one of its own, letter by letter.
        tokenizer.response_template = import_module("trl.chat_template_utils").qwen3_template
    return tokenizer


def build_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A fresh model for that tokenizer, from torch's random numbers as they stand."""
    model = Qwen3ForCausalLM(_architecture(tokenizer))
    for config in (model.config, model.generation_config):
        config.eos_token_id = tokenizer.eos_token_id
        config.pad_token_id = tokenizer.pad_token_id
    return model


def _architecture(tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT_TOKENS,
        # Five times the default, which leaves so narrow a model at chance for hundreds of steps.
        initializer_range=0.1,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _wrapped(bpe: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=PAD,
        padding_side="left",
        chat_template=TEMPLATE,
        model_max_length=CONTEXT_TOKENS,
    )


def _rendered(
    bpe: Tokenizer, conversations: Iterable[Sequence[Message]], tools: Sequence[Any]
) -> list[str]:
    renderer = _wrapped(bpe)
    texts = {
        renderer.apply_chat_template(list(talk), tools=list(tools), tokenize=False)
        for talk in conversations
    }
    # Sorted and twice: the result depends on neither order nor on how often a text came up, and
    # every text passes the minimum frequency of a merge.
    return sorted(texts) * 2


def _bpe_trainer() -> Any:
    return trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        min_frequency=2,
        special_tokens=list(CONTROL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
