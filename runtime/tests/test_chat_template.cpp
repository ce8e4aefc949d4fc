// Chat templates as C++ meets them; tests/runtime/test_jinja.py and tests/mobile_ft/data/test_chats.py hold them
// against Transformers.

#include "runtime/tests/test_support.h"
#include "runtime/text/chat_template.h"

using namespace mft;
using namespace mft_test;

namespace {

constexpr const char* kSource =
    "{{ strftime_now('%Y') if dated }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{{ lead }}{% endif %}";

Chat question() {
  Chat chat;
  chat.add("user", "Why?");
  return chat;
}

void test_settings() {
  const ChatTemplate plain(kSource, {{"eos_token", "."}});
  CHECK(plain.prompt(question()) == "<user>Why?.<assistant>");
  const ChatTemplate led = plain.with({R"({"lead": "So", "dated": true})", "2031-02-03"});
  CHECK(led.prompt(question()) == "2031<user>Why?.<assistant>So");
  CHECK(led.with({R"({"lead": "Oh"})", "2032-02-03"}).prompt(question()) == "2032<user>Why?.<assistant>Oh");
  CHECK(plain.prompt(question()) == "<user>Why?.<assistant>");
  CHECK_ERROR(plain.with({"[]", ""}), "chat_template_kwargs []: must be a JSON object");
  CHECK_ERROR(plain.with({R"({"led": 1})", ""}),
              R"(chat_template_kwargs {"led": 1}: the model's chat template has no variable led)");
  CHECK_ERROR(plain.with({"", "2031-02-30"}), "date 2031-02-30: must have the form YYYY-MM-DD");
}

/// A template stays open for weeks: what one chat sets must not be kept for the next.
void test_settings_are_freed() {
  const ChatTemplate plain(kSource, {{"eos_token", "."}});
  const std::string lead(jinja::kBudget / 8, 'x');
  for (int i = 0; i < 20; ++i) {
    CHECK(plain.with({"{\"lead\": \"" + lead + "\"}", ""}).prompt(question()).size() > lead.size());
  }
}

}  // namespace

int main() {
  test_settings();
  test_settings_are_freed();
  return finish();
}
