#include "runtime/config/data_config.h"

namespace mft {
namespace {

using C = DataConfig;

template <typename Field>
Option<C> data_option(const char* name, Field field, const char* help) {
  // A resumed run compares the tokenized data, so these options need not be compared.
  return option<C>(name, field, OptionGroup::kRun, false, help);
}

}  // namespace

const std::vector<Option<C>>& data_options() {
  static const std::vector<Option<C>> options = {
      data_option(
          "mask_prompt", [](C& c) -> auto& { return c.mask_prompt; },
          "compute the loss on answers only, not on prompts"),
      data_option(
          "assistant_turns", [](C& c) -> auto& { return c.assistant_turns; },
          "which assistant turns of a chat are trained on"),
      data_option(
          "chat_template_kwargs", [](C& c) -> auto& { return c.chat_template_kwargs; },
          "chat template variables as JSON, such as {\"enable_thinking\": false}"),
      data_option(
          "chat_template_date", [](C& c) -> auto& { return c.chat_template_date; },
          "date for chat templates that show one, YYYY-MM-DD; unset: today"),
      data_option(
          "on_bad_row", [](C& c) -> auto& { return c.on_bad_row; },
          "on a malformed row: stop with an error, or skip and report it"),
      data_option(
          "messages_key", [](C& c) -> auto& { return c.messages_key; }, "column with the messages of a chat"),
      data_option(
          "prompt_key", [](C& c) -> auto& { return c.prompt_key; }, "column with the prompt"),
      data_option(
          "completion_key", [](C& c) -> auto& { return c.completion_key; }, "column with the completion"),
  };
  return options;
}

}  // namespace mft
