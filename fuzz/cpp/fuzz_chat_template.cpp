/// A chat template: parsed, and rendered with a chat that has everything.

#include <ctime>

#include "fuzz/cpp/fuzz.h"
#include "runtime/jinja/json.h"
#include "runtime/jinja/template.h"

namespace {

constexpr const char* kVariables =
    R"({"messages":[{"role":"system","content":"Be  short.\n"},{"role":"user","content":"Is <a> & 'b' \u00fc? "},)"
    R"({"role":"assistant","content":"<think>\nhm\n</think>\n\nyes","tool_calls":[{"id":"c1","type":"function",)"
    R"("function":{"name":"add","arguments":{"a":1,"b":[2.5,null,true]}}}]},{"role":"tool","content":"3"},)"
    R"({"role":"user","content":"Oh"}],"tools":[{"type":"function","function":{"name":"add","parameters":{}}}],)"
    R"("add_generation_prompt":true,"bos_token":"<s>","enable_thinking":false})";

}  // namespace

std::vector<std::string> seeds() {
  return {
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] | trim }}{% endfor %}",
      "{%- set n = namespace(x=0) %}{%- for m in messages[::-1] %}{% set n.x = n.x + 1 %}{% endfor %}{{ n.x }}",
      "{% macro m(x, y=2) %}{{ x|tojson(indent=2) }}{{ caller() }}{% endmacro %}{% call m(messages) %}a{% endcall %}",
      "{{ messages|map(attribute='role')|join(',')|replace('user', 'b') }}{{ tools[0].function|dictsort }}",
      "{% if m is string and 'a' in m.split('b')[-1].strip() %}{{ raise_exception('no') }}{% elif 1 < 2 < 3 %}{% endif "
      "%}",
      "{% set a, b = 1, [2, 'x'] %}{{ a ~ b[0] // 1 ** 2 % 3 - 4 * -5 }}{{ {'k': (1,), 2: none}.get('k')[0] }}",
      "{% raw %}{{ x }}{% endraw %}{# c #}{% with q = 'a\\u00e9' %}{% filter upper|indent(2) %}b{% endfilter %}{% "
      "endwith %}",
      "{% generation %}{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{% endgeneration %}"
      "{{ strftime_now('%d %b %Y') }}{% set t %}{{ 'é'[0:1] }}{% endset %}{{ t|reverse }}",
      "{% for k, v in messages[2].items() if v is not none %}{% if loop.first %}{% continue %}{% endif %}{{ k }}"
      "{{ loop.previtem[0] }}{{ loop.cycle('a', 'b') }}{% break %}{% else %}none{% endfor %}",
  };
}

void run(const std::string& data) {
  const mft::jinja::Template parsed(data);
  mft::jinja::Memory values(1 << 20), memory(1 << 21);  // with the sanitizers, a tenth of what is allowed otherwise
  const mft::jinja::Value given = mft::jinja::read_json(kVariables, values);
  std::vector<std::pair<std::string, mft::jinja::Value>> variables;
  for (const auto& [name, value] : given.dict().items()) variables.emplace_back(name.text(), value);
  const std::tm date{0, 0, 12, 25, 10, 126, 3, 328, 0, 0, nullptr};
  parsed.render(variables, &given.dict().find("messages")->list(), date, memory);
}
