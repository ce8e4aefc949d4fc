#include "runtime/tokenizer/regex.h"

#include <algorithm>
#include <functional>

#include "runtime/base/error.h"
#include "runtime/unicode/unicode.h"

namespace mft {

Characters::Characters(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    begin.push_back(static_cast<uint32_t>(i));
    at.push_back(character_at(text, i, i));
  }
  begin.push_back(static_cast<uint32_t>(text.size()));
}

namespace {

constexpr size_t kMostNodes = 500;  // limits the stack; a thread may have only half a megabyte
constexpr size_t kMostClassParts = 10000;
constexpr int kMostDepth = 50;
constexpr size_t kMostSteps = 1000;  // per character of the text, on average

/// A set of characters.
struct Set {
  std::vector<std::pair<char32_t, char32_t>> ranges;  // disjoint and ordered after sorting
  uint32_t categories = 0;
  bool space = false, word = false;
  std::vector<Set> parts;  // nested classes
  bool negated = false;

  void sort() {
    std::sort(ranges.begin(), ranges.end());
    std::vector<std::pair<char32_t, char32_t>> apart;
    for (const auto& [first, last] : ranges) {
      if (!apart.empty() && first <= apart.back().second) {
        apart.back().second = std::max(apart.back().second, last);
      } else {
        apart.emplace_back(first, last);
      }
    }
    ranges = std::move(apart);
  }

  bool has(char32_t c) const {
    bool inside = (categories != 0 && is_in(categories, c)) || (space && is_space(c)) || (word && is_word(c));
    const auto behind = std::upper_bound(ranges.begin(), ranges.end(), std::pair<char32_t, char32_t>(c, UINT32_MAX));
    inside = inside || (behind != ranges.begin() && c <= std::prev(behind)->second);
    for (const Set& part : parts) inside = inside || part.has(c);
    return inside != negated;
  }
};

/// Returns the characters that differ only in case, for the characters that tokenizers use.
std::vector<char32_t> any_case(char32_t c) {
  std::vector<char32_t> all = {c};
  const char32_t lower = c >= 'A' && c <= 'Z' ? c + 32 : c;
  if (lower >= 'a' && lower <= 'z') {
    all = {lower, lower - 32};
    if (lower == 's') all.push_back(0x17f);
    if (lower == 'k') all.push_back(0x212a);
  }
  return all;
}

}  // namespace

struct Regex::Node {
  enum Kind { kSet, kSequence, kAlternatives, kRepeat, kLookahead } kind;
  Set set;                                      // kSet, kRepeat
  std::vector<std::unique_ptr<Node>> children;  // of kSequence and kAlternatives; kLookahead has one
  size_t least = 1, most = 1;                   // kRepeat
  bool lazy = false;                            // kRepeat
  bool negative = false;                        // kLookahead
};

namespace {

using Node = Regex::Node;
using NodePtr = std::unique_ptr<Node>;

NodePtr make(Node::Kind kind) {
  auto node = std::make_unique<Node>();
  node->kind = kind;
  return node;
}

/// A recursive descent parser.
class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern), text_(pattern) {}

  NodePtr parse() {
    NodePtr node = alternatives(0);
    if (at_ != text_.at.size()) refuse("an unmatched )");
    return node;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail("its regular expression has ", what, ", which is not supported: ", pattern_);
  }
  bool done() const { return at_ == text_.at.size(); }
  char32_t peek() const { return done() ? 0 : text_.at[at_]; }
  char32_t next() {
    if (done()) refuse("an early end");
    return text_.at[at_++];
  }
  bool take(std::string_view word) {
    size_t i = at_;
    for (const char c : word) {
      if (i == text_.at.size() || text_.at[i] != static_cast<unsigned char>(c)) return false;
      ++i;
    }
    at_ = i;
    return true;
  }

  NodePtr alternatives(int depth) {
    if (depth > kMostDepth) refuse("groups too deep");
    NodePtr node = make(Node::kAlternatives);
    do node->children.push_back(sequence(depth));
    while (take("|"));
    return node;
  }

  NodePtr sequence(int depth) {
    NodePtr node = make(Node::kSequence);
    while (!done() && peek() != '|' && peek() != ')') {
      if (++nodes_ > kMostNodes) refuse("too many parts");
      node->children.push_back(quantified(atom(depth)));
    }
    return node;
  }

  NodePtr atom(int depth) {
    if (take("(")) return group(depth);
    NodePtr node = make(Node::kSet);
    const char32_t c = next();
    if (c == '[') {
      node->set = bracketed(depth);
    } else if (c == '\\') {
      node->set = escaped();
      // Superscripts and fractions, which are part of Oniguruma's \w, but not within brackets.
      if (node->set.word) node->set.ranges = {{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}};
    } else if (c == '.') {
      node->set.ranges = {{'\n', '\n'}};
      node->set.negated = true;
    } else if (c == '^' || c == '$' || c == '*' || c == '+' || c == '?' || c == '{') {
      refuse("a " + std::string(1, static_cast<char>(c)) + " where a character should be");
    } else {
      add(node->set, c, c);
    }
    node->set.sort();
    return node;
  }

  NodePtr group(int depth) {
    const bool outer = any_case_;
    NodePtr node;
    if (take("?=") || take("?!")) {
      node = make(Node::kLookahead);
      node->negative = text_.at[at_ - 1] == '!';
      node->children.push_back(alternatives(depth + 1));
    } else {
      if (take("?i:")) {
        any_case_ = true;
      } else if (!take("?:") && peek() == '?') {
        refuse("a group that begins with (?");
      }
      node = alternatives(depth + 1);
    }
    any_case_ = outer;
    if (!take(")")) refuse("a group without end");
    return node;
  }

  NodePtr quantified(NodePtr node) {
    size_t least, most;
    if (take("?")) {
      least = 0, most = 1;
    } else if (take("*")) {
      least = 0, most = SIZE_MAX;
    } else if (take("+")) {
      least = 1, most = SIZE_MAX;
    } else if (take("{")) {
      least = peek() == ',' ? 0 : number();
      most = !take(",") ? least : peek() == '}' ? SIZE_MAX : number();
      if (!take("}") || most < least) refuse("a { } that is not a count");
    } else {
      return node;
    }
    if (least == most && peek() == '?') refuse("an optional { }");
    const bool lazy = take("?");
    if (peek() == '+' || peek() == '*' || peek() == '?' || peek() == '{') refuse("a quantifier after another one");
    if (node->kind == Node::kSet) {
      node->kind = Node::kRepeat;
      node->least = least, node->most = most, node->lazy = lazy;
      return node;
    }
    if (node->kind != Node::kAlternatives || least != 0 || most != 1) refuse("a repeated group");
    NodePtr optional = make(Node::kAlternatives);
    optional->children.push_back(std::move(node));
    optional->children.push_back(make(Node::kSequence));
    if (lazy) std::swap(optional->children[0], optional->children[1]);
    return optional;
  }

  size_t number() {
    size_t value = 0;
    const size_t begin = at_;
    while (peek() >= '0' && peek() <= '9' && value < 100000) value = 10 * value + (next() - '0');
    if (at_ == begin) refuse("a { } that is not a count");
    return value;
  }

  void add(Set& set, char32_t first, char32_t last) const {
    set.ranges.emplace_back(first, last);
    if (!any_case_) return;
    if (last >= 0x80) refuse("case-insensitive letters other than ASCII");
    for (char32_t c = first; c <= last; ++c) {
      for (const char32_t other : any_case(c)) set.ranges.emplace_back(other, other);
    }
  }

  /// Parses an escape after the backslash.
  Set escaped() {
    Set set;
    const char32_t c = next();
    switch (c) {
      case 's':
      case 'S':
        set.space = true;
        set.negated = c == 'S';
        return set;
      case 'd':
      case 'D':
        set.categories = categories_named("Nd");
        set.negated = c == 'D';
        return set;
      case 'w':
      case 'W':
        set.word = true;
        set.negated = c == 'W';
        return set;
      case 'p':
      case 'P': {
        if (!take("{")) refuse("a \\p without {");
        set.negated = (c == 'P') != take("^");
        std::string name;
        while (peek() != '}') append_utf8(name, next());
        ++at_;
        set.categories = categories_named(name);
        if (set.categories == 0) refuse("the property " + name);
        return set;
      }
      default:
        add(set, literal(c), literal(c));
        return set;
    }
  }

  /// Returns the character of the escape `c`.
  char32_t literal(char32_t c) {
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      default:
        break;
    }
    if (c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      refuse("a \\" + std::string(1, static_cast<char>(c < 0x80 ? c : '?')));
    }
    return c;
  }

  /// Parses a class after the [.
  Set bracketed(int depth) {
    if (depth > kMostDepth) refuse("classes too deep");
    Set set;
    set.negated = take("^");
    bool first = true;
    while (first || peek() != ']') {
      if (++class_parts_ > kMostClassParts) refuse("too many parts");
      first = false;
      if (take("[")) {
        if (peek() == ':') refuse("a POSIX class");
        set.parts.push_back(bracketed(depth + 1));
        continue;
      }
      if (take("&&")) refuse("a && in a class");
      char32_t c = next();
      if (c == '\\') {
        const char32_t escape = peek();
        if (std::u32string_view(U"sSdDwWpP").find(escape) != std::u32string_view::npos) {
          set.parts.push_back(escaped());
          continue;
        }
        c = literal(next());
      }
      char32_t last = c;
      if (peek() == '-' && at_ + 1 < text_.at.size() && text_.at[at_ + 1] != ']') {
        ++at_;
        last = next();
        if (last == '\\') last = literal(next());
        if (last < c) refuse("a reversed range");
      }
      add(set, c, last);
    }
    ++at_;
    set.sort();
    return set;
  }

  std::string pattern_;
  Characters text_;
  size_t at_ = 0, nodes_ = 0, class_parts_ = 0;
  bool any_case_ = false;
};

/// Whether it can match the empty text.
bool may_be_empty(const Node& node) {
  const auto child_may = [](const NodePtr& child) { return may_be_empty(*child); };
  switch (node.kind) {
    case Node::kSet:
      return false;
    case Node::kSequence:
      return std::all_of(node.children.begin(), node.children.end(), child_may);
    case Node::kAlternatives:
      return std::any_of(node.children.begin(), node.children.end(), child_may);
    case Node::kRepeat:
      return node.least == 0;
    case Node::kLookahead:
      return true;
  }
  return true;
}

/// A backtracking matcher. The stack grows with the pattern but not with the text, because only single characters
/// repeat.
class Matcher {
 public:
  using Rest = std::function<bool(size_t)>;

  explicit Matcher(const Characters& text) : text_(text), most_steps_(kMostSteps * (text.at.size() + 1000)) {}

  /// Returns the end of the match that begins at `at`, or `at` if there is none.
  size_t match(const Node& root, size_t at) {
    size_t end = at;
    run(root, at, [&](size_t i) {
      end = i;
      return true;
    });
    return end;
  }

 private:
  bool run(const Node& node, size_t at, const Rest& rest) {
    count_step();
    switch (node.kind) {
      case Node::kSet:
        return at < text_.at.size() && node.set.has(text_.at[at]) && rest(at + 1);
      case Node::kSequence:
        return sequence(node, 0, at, rest);
      case Node::kAlternatives:
        for (const NodePtr& child : node.children) {
          if (run(*child, at, rest)) return true;
        }
        return false;
      case Node::kRepeat:
        return repeat(node, at, rest);
      case Node::kLookahead:
        return run(*node.children[0], at, [](size_t) { return true; }) != node.negative && rest(at);
    }
    return false;
  }

  void count_step() {
    if (++steps_ > most_steps_) fail("the tokenizer's regular expression takes too long for this text");
  }

  bool sequence(const Node& node, size_t child, size_t at, const Rest& rest) {
    if (child == node.children.size()) return rest(at);
    return run(*node.children[child], at, [&, child](size_t i) { return sequence(node, child + 1, i, rest); });
  }

  bool repeat(const Node& node, size_t at, const Rest& rest) {
    size_t most = 0;
    const size_t room = std::min(node.most, text_.at.size() - at);
    if (node.lazy) {
      for (;; ++most) {
        count_step();
        if (most >= node.least && rest(at + most)) return true;
        if (most == room || !node.set.has(text_.at[at + most])) return false;
      }
    }
    while (most < room && node.set.has(text_.at[at + most])) ++most;
    steps_ += most;
    for (size_t count = most + 1; count-- > node.least;) {
      count_step();
      if (rest(at + count)) return true;
    }
    return false;
  }

  const Characters& text_;
  size_t most_steps_, steps_ = 0;
};

}  // namespace

Regex::Regex() = default;
Regex::Regex(std::string_view pattern) : root_(Parser(pattern).parse()) {
  if (may_be_empty(*root_)) fail("its regular expression can match the empty text, which is not supported: ", pattern);
}
Regex::Regex(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex Regex::literal(std::string_view text) {
  Regex regex;
  regex.literal_ = Characters(text).at;
  return regex;
}

std::vector<Regex::Match> Regex::find_all(const Characters& text) const {
  std::vector<Match> found;
  if (!root_) {
    if (literal_.empty()) return found;
    for (auto at = text.at.begin();;) {
      at = std::search(at, text.at.end(), literal_.begin(), literal_.end());
      if (at == text.at.end()) return found;
      const auto begin = static_cast<size_t>(at - text.at.begin());
      found.push_back({begin, begin + literal_.size()});
      at += static_cast<ptrdiff_t>(literal_.size());
    }
  }
  Matcher matcher(text);
  for (size_t at = 0; at < text.at.size();) {
    const size_t end = matcher.match(*root_, at);
    if (end != at) found.push_back({at, end});
    at = std::max(end, at + 1);
  }
  return found;
}

}  // namespace mft
