#include "runtime/jinja/text_methods.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/jinja/texts.h"
#include "runtime/unicode/letter_case.h"
#include "runtime/unicode/unicode.h"

namespace mft::jinja {
namespace {

/// Converts the result of a search from bytes to characters.
int64_t in_characters(const std::string& text, size_t place) {
  return place == std::string::npos ? -1 : count_characters(std::string_view(text).substr(0, place));
}

template <Ends ends>
Value strip(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(1);
  const std::string* characters = nullptr;
  if (arguments.has(0) && !arguments.at(0).is(Type::kNone)) characters = &arguments.text(0);
  return memory.text(stripped(self.text(), characters, ends, memory));
}

template <bool from_end>
Value find(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(1, 1);
  const std::string &text = self.text(), &wanted = arguments.text(0);
  memory.spend(text.size());
  return Value::of(in_characters(
      text, from_end ? found_before(text, wanted, text.size(), memory) : found_in(text, wanted, 0, memory)));
}

template <bool from_end>
Value index(const Value& self, CallArguments& arguments, Memory& memory) {
  const Value place = find<from_end>(self, arguments, memory);
  if (place.integer() < 0) fail("substring not found");
  return place;
}

Value count(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(1, 1);
  const std::string &text = self.text(), &wanted = arguments.text(0);
  memory.spend(text.size());
  if (wanted.empty()) return Value::of(count_characters(text) + 1);
  int64_t found = 0;
  for (size_t at = found_in(text, wanted, 0, memory); at != text.npos;) {
    ++found;
    at = found_in(text, wanted, at + wanted.size(), memory);
  }
  return Value::of(found);
}

template <bool at_end>
Value starts_or_ends(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(1, 1);
  const std::string& text = self.text();
  const auto holds = [&](const Value& affix) {
    if (!affix.is(Type::kText)) fail(arguments.function(), "() requires a str or a tuple of str");
    const std::string& with = affix.text();
    memory.spend(with.size());
    return with.size() <= text.size() && text.compare(at_end ? text.size() - with.size() : 0, with.size(), with) == 0;
  };
  const Value& given = arguments.at(0);
  if (!given.is(Type::kList) || !given.list().tuple) return Value::of(holds(given));
  return Value::of(std::any_of(given.list().items.begin(), given.list().items.end(), holds));
}

template <bool at_end>
Value without_affix(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(1, 1);
  const std::string &text = self.text(), &affix = arguments.text(0);
  const bool has =
      affix.size() <= text.size() && text.compare(at_end ? text.size() - affix.size() : 0, affix.size(), affix) == 0;
  if (!has) return self;
  return memory.text(at_end ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size()));
}

/// Splits at blanks, with at most `most` splits, from the left or from the right.
std::vector<std::string> words_of(const std::string& text, int64_t most, bool from_end) {
  std::vector<std::string> words;
  size_t begin = skip(text, 0, is_python_space), end = skip_back(text, text.size(), is_python_space);
  while (begin < end) {
    const auto is_word = [](char32_t c) { return !is_python_space(c); };
    if (most == 0) {  // the rest, including its blanks
      words.push_back(from_end ? text.substr(0, end) : text.substr(begin));
      break;
    }
    --most;
    if (from_end) {
      const size_t word = std::max(begin, skip_back(text, end, is_word));
      words.push_back(text.substr(word, end - word));
      end = std::max(begin, skip_back(text, word, is_python_space));
    } else {
      const size_t past = std::min(end, skip(text, begin, is_word));
      words.push_back(text.substr(begin, past - begin));
      begin = std::min(end, skip(text, past, is_python_space));
    }
  }
  if (from_end) std::reverse(words.begin(), words.end());
  return words;
}

std::vector<std::string> parts_of(const std::string& text, const std::string& separator, int64_t most, bool from_end,
                                  Memory& memory) {
  std::vector<std::string> parts;
  size_t begin = 0, end = text.size();
  for (; most != 0; --most) {
    const size_t found =
        from_end ? found_before(text, separator, end, memory) : found_in(text, separator, begin, memory);
    if (found == text.npos) break;
    memory.spend(kItemPrice);
    if (from_end) {
      parts.push_back(text.substr(found + separator.size(), end - found - separator.size()));
      end = found;
    } else {
      parts.push_back(text.substr(begin, found - begin));
      begin = found + separator.size();
    }
  }
  parts.push_back(text.substr(begin, end - begin));
  if (from_end) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value list_of(std::vector<std::string> texts, Memory& memory) {
  std::vector<Value> items;
  for (std::string& text : texts) {
    memory.spend(kItemPrice);
    items.push_back(memory.text(std::move(text)));
  }
  return memory.list(std::move(items));
}

template <bool from_end>
Value split(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match({"sep", "maxsplit"});
  const std::string& text = self.text();
  const int64_t most = arguments.integer(1, -1);
  if (!arguments.has(0) || arguments.at(0).is(Type::kNone)) {
    const auto is_blank = [](char c) { return (c & 0x80) != 0 || is_python_space(static_cast<unsigned char>(c)); };
    memory.spend(static_cast<int64_t>(text.size()) +
                 2 * kItemPrice * (1 + std::count_if(text.begin(), text.end(), is_blank) / 2));
    return list_of(words_of(text, most, from_end), memory);
  }
  const std::string& separator = arguments.text(0);
  if (separator.empty()) fail("empty separator");
  memory.spend(text.size());
  return list_of(parts_of(text, separator, most, from_end, memory), memory);
}

bool is_line_end(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

Value split_lines(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match({"keepends"});
  const std::string& text = self.text();
  const bool keep = arguments.integer(0, 0) != 0;
  std::vector<std::string> lines;
  memory.spend(text.size());
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = skip(text, begin, [](char32_t c) { return !is_line_end(c); });
    size_t past = end;
    if (end < text.size()) {
      const char32_t c = character_at(text, end, past);
      if (c == '\r' && past < text.size() && text[past] == '\n') ++past;
    }
    memory.spend(kItemPrice);
    lines.push_back(text.substr(begin, (keep ? past : end) - begin));
    begin = past;
  }
  return list_of(std::move(lines), memory);
}

template <bool from_end>
Value partition(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(1, 1);
  const std::string &text = self.text(), &separator = arguments.text(0);
  if (separator.empty()) fail("empty separator");
  memory.spend(text.size());
  const size_t found =
      from_end ? found_before(text, separator, text.size(), memory) : found_in(text, separator, 0, memory);
  const Value empty = memory.text("");
  if (found == text.npos) {
    return memory.list(from_end ? std::vector<Value>{empty, empty, self} : std::vector<Value>{self, empty, empty},
                       true);
  }
  return memory.list(
      {memory.text(text.substr(0, found)), memory.text(separator), memory.text(text.substr(found + separator.size()))},
      true);
}

Value replace(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(3, 2);
  return memory.text(replaced(self.text(), arguments.text(0), arguments.text(1), arguments.integer(2, -1), memory));
}

Value join(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(1, 1);
  const std::vector<Value> items = items_of(arguments.at(0), memory);
  for (const Value& one : items) {
    if (!one.is(Type::kText)) fail("join() requires str items, not ", type_name(one));
  }
  return memory.text(joined(self.text(), items, memory));
}

template <std::string (*how)(std::string_view)>
Value change_case(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(0);
  return memory.text(cased(self.text(), how, memory));
}

/// str.isdigit() and similar methods: whether a text is not empty and all its characters are of a kind.
template <bool (*is)(char32_t)>
Value all_are(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(0);
  const std::string& text = self.text();
  memory.spend(kCasePrice * text.size());
  return Value::of(!text.empty() && skip(text, 0, is) == text.size());
}

bool is_letter_or_digit(char32_t c) { return is_letter(c) || is_digit(c) || is_numeral(c); }

/// str.islower() and isupper(): whether some characters have the case, and none has another.
template <bool (*is)(char32_t), bool (*is_other)(char32_t)>
Value is_cased(const Value& self, CallArguments& arguments, Memory& memory) {
  arguments.match_positional(0);
  const std::string& text = self.text();
  memory.spend(2 * kCasePrice * text.size());
  const bool none = skip(text, 0, [](char32_t c) { return !is(c); }) == text.size();
  const bool others = skip(text, 0, [](char32_t c) { return !is_other(c) && !is_title(c); }) != text.size();
  return Value::of(!none && !others);
}

/// str.format() with fields that are empty, numbers or names.
Value format(const Value& self, CallArguments& arguments, Memory& memory) {
  const std::string& text = self.text();
  std::string out;
  size_t next_index = 0;
  bool counts = false, numbers = false;  // fields {} and {0}, which Python does not allow to mix
  const auto field = [&](const std::string& name) -> const Value& {
    const bool number = !name.empty() && name.find_first_not_of("0123456789") == name.npos;
    if (name.find_first_of("{[.:!") != name.npos) fail("format() supports only names and numbers in {}");
    if (!name.empty() && !number) {
      for (const auto& [key, value] : arguments.named()) {
        if (key == name) return value;
      }
      fail("format() has no argument ", name);
    }
    (number ? numbers : counts) = true;
    if (counts && numbers) fail("format() cannot mix {} and numbers in {}");
    if (name.size() > 2) fail("format() has no argument ", name);
    const size_t index = number ? static_cast<size_t>(std::stoi(name)) : next_index++;
    if (index >= arguments.positional().size()) fail("format() has no argument ", index);
    return arguments.positional()[index];
  };
  for (size_t i = 0; i < text.size(); ++i) {
    memory.spend(kStepPrice);
    const bool twice = i + 1 < text.size() && text[i + 1] == text[i];
    if ((text[i] != '{' && text[i] != '}') || twice) {
      out += text[i];
      if (text[i] == '{' || text[i] == '}') ++i;
      continue;
    }
    const size_t end = text.find('}', i);
    if (text[i] == '}' || end == text.npos) fail("format() has a single ", text[i]);
    out += to_text(field(text.substr(i + 1, end - i - 1)), memory);
    i = end;
  }
  return memory.text(std::move(out));
}

}  // namespace

const MethodTable& text_methods() {
  static const MethodTable table = {
      {"capitalize", change_case<capitalized>},
      {"count", count},
      {"endswith", starts_or_ends<true>},
      {"find", find<false>},
      {"format", format},
      {"index", index<false>},
      {"isalnum", all_are<is_letter_or_digit>},
      {"isalpha", all_are<is_letter>},
      {"isdigit", all_are<is_digit>},
      {"islower", is_cased<is_lower, is_upper>},
      {"isnumeric", all_are<is_numeral>},
      {"isspace", all_are<is_python_space>},
      {"isupper", is_cased<is_upper, is_lower>},
      {"join", join},
      {"lower", change_case<lower_case>},
      {"lstrip", strip<Ends::kLeft>},
      {"partition", partition<false>},
      {"removeprefix", without_affix<false>},
      {"removesuffix", without_affix<true>},
      {"replace", replace},
      {"rfind", find<true>},
      {"rindex", index<true>},
      {"rpartition", partition<true>},
      {"rsplit", split<true>},
      {"rstrip", strip<Ends::kRight>},
      {"split", split<false>},
      {"splitlines", split_lines},
      {"startswith", starts_or_ends<false>},
      {"strip", strip<Ends::kBoth>},
      {"title", change_case<title_case>},
      {"upper", change_case<upper_case>},
  };
  return table;
}

}  // namespace mft::jinja
