#include "runtime/jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <unordered_map>

#include "runtime/core/error.h"
#include "runtime/jinja/lexer.h"
#include "runtime/jinja/value.h"
#include "runtime/jinja/variables.h"

namespace mft::jinja {
namespace {

constexpr size_t kMostCharacters = size_t{1} << 18;
constexpr int kMostDepth = 150;  // of expressions within expressions, and of statements

/// By recursive descent, as Jinja's own parser does.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
    for (const char* name : {"loop", "caller", "varargs", "kwargs"}) number_of(name);  // as KnownName has them
  }

  Syntax parse() {
    syntax_.body = body({});
    return std::move(syntax_);
  }

 private:
  // Tokens.

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return current().type == TokenType::kEnd ? current() : tokens_[at_++]; }

  bool is_sign(std::string_view sign) const { return current().type == TokenType::kSign && current().text == sign; }
  bool is_name(std::string_view name) const { return current().type == TokenType::kName && current().text == name; }
  bool is_any_name(std::initializer_list<std::string_view> names) const {
    return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return is_name(name); });
  }

  bool skip_sign(std::string_view sign) { return is_sign(sign) && (++at_, true); }
  bool skip_name(std::string_view name) { return is_name(name) && (++at_, true); }

  template <typename... What>
  [[noreturn]] void fail_here(const What&... what) const {
    fail("line ", current().line, ": ", what...);
  }
  [[noreturn]] void fail_unexpected() const {
    const Token& token = current();
    fail_here("unexpected ", token.text.empty() ? "end of the tag or of the template" : "'" + token.text + "'");
  }

  void expect_sign(std::string_view sign) {
    if (!skip_sign(sign)) fail_unexpected();
  }
  std::string expect_name() {
    if (current().type != TokenType::kName) fail_unexpected();
    return take().text;
  }
  void expect_end(TokenType type) {
    if (current().type != type) fail_unexpected();
    ++at_;
  }

  int number_of(const std::string& name) {
    const auto [found, is_new] = numbers_.emplace(name, static_cast<int>(syntax_.names.size()));
    if (is_new) syntax_.names.push_back(name);
    return found->second;
  }

  // Nodes.

  ExpressionPtr make(ExpressionKind kind, std::vector<ExpressionPtr> parts = {}, std::string word = "") {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->line = current().line;
    made->word = std::move(word);
    made->parts = std::move(parts);
    for (const auto& part : made->parts) deepen(*made, part);
    return made;
  }

  void deepen(Expression& expression, const ExpressionPtr& part) const {
    if (part != nullptr) expression.depth = std::max(expression.depth, part->depth + 1);
    if (expression.depth > kMostDepth) fail_here("expressions nested deeper than ", kMostDepth);
  }

  ExpressionPtr pair(ExpressionKind kind, ExpressionPtr one, ExpressionPtr other, std::string word = "") {
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(one));
    parts.push_back(std::move(other));
    return make(kind, std::move(parts), std::move(word));
  }

  ExpressionPtr single(ExpressionKind kind, ExpressionPtr one, std::string word = "") {
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(one));
    return make(kind, std::move(parts), std::move(word));
  }

  ExpressionPtr constant(Constant value) {
    auto made = make(ExpressionKind::kConstant);
    made->constant = std::move(value);
    return made;
  }

  ExpressionPtr name(const std::string& word) {
    if (word == "self") fail_here("self is not supported");
    auto made = make(ExpressionKind::kName, {}, word);
    made->name = number_of(word);
    for (Macro* macro : macros_) {  // macros within a macro count for it too
      macro->takes_caller |= word == "caller";
      macro->takes_varargs |= word == "varargs";
      macro->takes_kwargs |= word == "kwargs";
    }
    return made;
  }

  /// Counts levels of the parser's own recursion as long as it lives.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.level_ > kMostDepth) parser_.fail_here("nested deeper than ", kMostDepth);
    }
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  // Expressions, from what binds least to what binds most.

  ExpressionPtr expression(bool with_condition = true) {
    const Level level(*this);
    return with_condition ? condition() : disjunction();
  }

  ExpressionPtr condition() {
    ExpressionPtr value = disjunction();
    while (skip_name("if")) {
      ExpressionPtr test = disjunction();
      ExpressionPtr otherwise;
      if (skip_name("else")) {
        const Level level(*this);
        otherwise = condition();
      }
      std::vector<ExpressionPtr> parts;
      parts.push_back(std::move(value));
      parts.push_back(std::move(test));
      parts.push_back(std::move(otherwise));
      value = make(ExpressionKind::kCondition, std::move(parts));
    }
    return value;
  }

  ExpressionPtr disjunction() {
    ExpressionPtr value = conjunction();
    while (skip_name("or")) value = pair(ExpressionKind::kBinary, std::move(value), conjunction(), "or");
    return value;
  }

  ExpressionPtr conjunction() {
    ExpressionPtr value = negation();
    while (skip_name("and")) value = pair(ExpressionKind::kBinary, std::move(value), negation(), "and");
    return value;
  }

  ExpressionPtr negation() {
    if (!skip_name("not")) return comparison();
    const Level level(*this);
    return single(ExpressionKind::kUnary, negation(), "not");
  }

  ExpressionPtr comparison() {
    ExpressionPtr first = sum();
    std::vector<ExpressionPtr> parts;
    std::vector<std::string> words;
    for (std::string word = comparison_word(); !word.empty(); word = comparison_word()) {
      if (parts.empty()) parts.push_back(std::move(first));
      words.push_back(word);
      parts.push_back(sum());
    }
    if (words.empty()) return first;
    ExpressionPtr made = make(ExpressionKind::kCompare, std::move(parts));
    made->words = std::move(words);
    return made;
  }

  std::string comparison_word() {
    for (const char* sign : {"==", "!=", "<", "<=", ">", ">="}) {
      if (skip_sign(sign)) return sign;
    }
    if (skip_name("in")) return "in";
    if (is_name("not") && ahead().type == TokenType::kName && ahead().text == "in") {
      at_ += 2;
      return "not in";
    }
    return "";
  }

  /// What binds alike: operands of `next` with any of the signs between.
  template <typename Next>
  ExpressionPtr chain(std::initializer_list<std::string_view> signs, Next next) {
    ExpressionPtr value = next();
    for (;;) {
      const auto sign = std::find_if(signs.begin(), signs.end(), [&](std::string_view one) { return skip_sign(one); });
      if (sign == signs.end()) return value;
      value = pair(ExpressionKind::kBinary, std::move(value), next(), std::string(*sign));
    }
  }

  ExpressionPtr sum() {
    return chain({"+", "-"}, [&] { return concatenation(); });
  }
  ExpressionPtr concatenation() {
    return chain({"~"}, [&] { return product(); });
  }
  ExpressionPtr product() {
    return chain({"*", "/", "//", "%"}, [&] { return power(); });
  }
  ExpressionPtr power() {
    return chain({"**"}, [&] { return unary(true); });
  }

  ExpressionPtr unary(bool with_filter) {
    const Level level(*this);
    ExpressionPtr value;
    if (is_sign("-") || is_sign("+")) {
      const std::string sign = take().text;
      value = single(ExpressionKind::kUnary, unary(false), sign);
    } else {
      value = primary();
    }
    value = postfix(std::move(value));
    return with_filter ? filters_and_tests(std::move(value)) : std::move(value);
  }

  ExpressionPtr primary() {
    const Token token = current();
    switch (token.type) {
      case TokenType::kName:
        ++at_;
        if (token.text == "true" || token.text == "True") return constant({ConstantType::kBool, 1, 0, ""});
        if (token.text == "false" || token.text == "False") return constant({ConstantType::kBool, 0, 0, ""});
        if (token.text == "none" || token.text == "None") return constant({});
        return name(token.text);
      case TokenType::kText: {
        std::string text;
        while (current().type == TokenType::kText) text += take().text;
        return constant({ConstantType::kText, 0, 0, std::move(text)});
      }
      case TokenType::kInt:
        ++at_;
        return constant({ConstantType::kInt, integer(token.text), 0, ""});
      case TokenType::kFloat:
        ++at_;
        return constant({ConstantType::kFloat, 0, real(token.text), ""});
      default:
        break;
    }
    if (skip_sign("(")) {
      ExpressionPtr value = tuple(true);
      expect_sign(")");
      return value;
    }
    if (skip_sign("[")) return make(ExpressionKind::kList, sequence("]"));
    if (skip_sign("{")) return dict();
    fail_unexpected();
  }

  int64_t integer(const std::string& text) const {
    const char kind = text.size() > 1 ? static_cast<char>(text[1] | 0x20) : '\0';
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + (base == 10 ? 0 : 2), end, value, base);
    if (read.ec != std::errc() || read.ptr != end) fail_here("an integer of more than 63 bits");
    return value;
  }

  double real(const std::string& text) const {
    double value = 0;
    if (!read_real(text, value)) fail_here("no number: ", text);
    return value;
  }

  std::vector<ExpressionPtr> sequence(std::string_view end) {
    std::vector<ExpressionPtr> items;
    while (!is_sign(end)) {
      if (!items.empty()) expect_sign(",");
      if (is_sign(end)) break;
      items.push_back(expression());
    }
    expect_sign(end);
    return items;
  }

  ExpressionPtr dict() {
    std::vector<ExpressionPtr> parts;
    while (!is_sign("}")) {
      if (!parts.empty()) expect_sign(",");
      if (is_sign("}")) break;
      parts.push_back(expression());
      expect_sign(":");
      parts.push_back(expression());
    }
    expect_sign("}");
    return make(ExpressionKind::kDict, std::move(parts));
  }

  bool at_tuple_end(std::string_view end_name) const {
    return current().type == TokenType::kVariableEnd || current().type == TokenType::kBlockEnd || is_sign(")") ||
           (!end_name.empty() && is_name(end_name));
  }

  /// Expressions with commas between, or the one there is.
  ExpressionPtr tuple(bool in_brackets, bool with_condition = true, std::string_view end_name = "") {
    std::vector<ExpressionPtr> items;
    bool is_tuple = false;
    for (;;) {
      if (!items.empty()) expect_sign(",");
      if (at_tuple_end(end_name)) break;
      items.push_back(expression(with_condition));
      if (!is_sign(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && !items.empty()) return std::move(items[0]);
    if (!is_tuple && !in_brackets) fail_unexpected();
    return make(ExpressionKind::kTuple, std::move(items));
  }

  ExpressionPtr postfix(ExpressionPtr value) {
    for (;;) {
      if (skip_sign(".")) {
        if (current().type == TokenType::kInt) {
          ExpressionPtr index = primary();
          value = pair(ExpressionKind::kItem, std::move(value), std::move(index));
        } else {
          value = single(ExpressionKind::kAttribute, std::move(value), expect_name());
        }
      } else if (skip_sign("[")) {
        value = subscript(std::move(value));
      } else if (is_sign("(")) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr value) {
    std::vector<ExpressionPtr> bounds;  // start, stop, step
    bounds.push_back(is_sign(":") ? nullptr : expression());
    if (skip_sign("]")) return pair(ExpressionKind::kItem, std::move(value), std::move(bounds[0]));
    expect_sign(":");
    bounds.push_back(is_sign("]") || is_sign(":") ? nullptr : expression());
    bounds.push_back(skip_sign(":") && !is_sign("]") ? expression() : nullptr);
    expect_sign("]");
    bounds.insert(bounds.begin(), std::move(value));
    return make(ExpressionKind::kSlice, std::move(bounds));
  }

  void read_arguments(Expression& made) {
    expect_sign("(");
    Arguments& arguments = made.arguments;
    bool first = true;
    while (!is_sign(")")) {
      if (!first) expect_sign(",");
      first = false;
      if (is_sign(")")) break;
      if (is_sign("*") || is_sign("**")) fail_here("arguments with ", current().text, " are not supported");
      if (current().type == TokenType::kName && ahead().type == TokenType::kSign && ahead().text == "=") {
        const std::string key = take().text;
        ++at_;
        const auto& named = arguments.named;
        if (std::any_of(named.begin(), named.end(), [&](const auto& one) { return one.first == key; })) {
          fail_here("the argument ", key, " is given twice");
        }
        arguments.named.emplace_back(key, expression());
        deepen(made, arguments.named.back().second);
      } else {
        if (!arguments.named.empty()) fail_here("an argument without name behind one with name");
        arguments.positional.push_back(expression());
        deepen(made, arguments.positional.back());
      }
    }
    expect_sign(")");
  }

  ExpressionPtr call(ExpressionPtr callee) {
    ExpressionPtr made = single(ExpressionKind::kCall, std::move(callee));
    read_arguments(*made);
    return made;
  }

  ExpressionPtr filter(ExpressionPtr value) {
    ExpressionPtr made = single(ExpressionKind::kFilter, std::move(value), expect_name());
    if (is_sign("(")) read_arguments(*made);
    return made;
  }

  ExpressionPtr test(ExpressionPtr value) {
    const bool negated = skip_name("not");
    ExpressionPtr made = single(ExpressionKind::kTest, std::move(value), expect_name());
    const TokenType type = current().type;
    const bool operand = type == TokenType::kName || type == TokenType::kText || type == TokenType::kInt ||
                         type == TokenType::kFloat || is_sign("[") || is_sign("{");
    if (is_sign("(")) {
      read_arguments(*made);
    } else if (operand && !is_any_name({"else", "or", "and"})) {
      if (is_name("is")) fail_here("tests with `is` cannot follow each other");
      made->arguments.positional.push_back(postfix(primary()));
      deepen(*made, made->arguments.positional.back());
    }
    return negated ? single(ExpressionKind::kUnary, std::move(made), "not") : std::move(made);
  }

  ExpressionPtr filters_and_tests(ExpressionPtr value) {
    for (;;) {
      if (skip_sign("|")) {
        value = filter(std::move(value));
      } else if (skip_name("is")) {
        value = test(std::move(value));
      } else if (is_sign("(")) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }

  // Statements.

  /// Up to a tag that begins with any of `ends`, at whose name it stops; to the end of the template where there are
  /// none.
  Body body(std::initializer_list<std::string_view> ends) {
    const Level level(*this);
    Body statements;
    for (;;) {
      const Token& token = current();
      if (token.type == TokenType::kEnd) {
        if (ends.size() != 0) fail_here("the template ends before ", *ends.begin());
        return statements;
      }
      if (token.type == TokenType::kData) {
        auto made = begin(StatementKind::kData);
        made->data = take().text;
        statements.push_back(std::move(made));
      } else if (token.type == TokenType::kVariableBegin) {
        ++at_;
        auto made = begin(StatementKind::kPrint);
        made->value = tuple(false);
        expect_end(TokenType::kVariableEnd);
        statements.push_back(std::move(made));
      } else {
        ++at_;
        if (is_any_name(ends)) return statements;
        statements.push_back(statement());
        expect_end(TokenType::kBlockEnd);
      }
    }
  }

  std::unique_ptr<Statement> begin(StatementKind kind) const {
    auto made = std::make_unique<Statement>();
    made->kind = kind;
    made->line = current().line;
    return made;
  }

  /// The text up to `end`, whose tag is left at its own end.
  Body block(std::string_view end) {
    expect_end(TokenType::kBlockEnd);
    Body statements = body({end});
    ++at_;
    return statements;
  }

  std::unique_ptr<Statement> statement() {
    const std::string word = expect_name();
    if (word == "if") return if_statement();
    if (word == "for") return for_statement();
    if (word == "set") return set_statement();
    if (word == "macro") return macro_statement();
    if (word == "call") return call_statement();
    if (word == "with") return with_statement();
    if (word == "filter") {
      auto made = begin(StatementKind::kFilter);
      made->value = filters_of_block();
      made->body = block("endfilter");
      return made;
    }
    if (word == "generation") {
      auto made = begin(StatementKind::kGeneration);
      made->macro = std::make_unique<Macro>();  // Transformers makes it the body of a call
      made->macro->name = "caller";
      read_macro_body(*made->macro, "endgeneration");
      if (made->macro->takes_caller || made->macro->takes_varargs || made->macro->takes_kwargs) {
        fail_here("caller, varargs and kwargs are not supported in a generation block");
      }
      return made;
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) fail_here(word, " outside of a loop");
      return begin(word == "break" ? StatementKind::kBreak : StatementKind::kContinue);
    }
    fail_here("the tag ", word, " is not supported");
  }

  std::unique_ptr<Statement> if_statement() {
    auto made = begin(StatementKind::kIf);
    for (bool otherwise = false;;) {
      Branch branch;
      if (!otherwise) branch.test = tuple(false, false);
      expect_end(TokenType::kBlockEnd);
      branch.body = otherwise ? body({"endif"}) : body({"elif", "else", "endif"});
      made->branches.push_back(std::move(branch));
      const std::string word = take().text;
      if (word == "endif") return made;
      otherwise = word == "else";
    }
  }

  static bool is_loop(const Expression& target) {
    return target.word == "loop" ||
           std::any_of(target.parts.begin(), target.parts.end(), [](const auto& part) { return is_loop(*part); });
  }

  std::unique_ptr<Statement> for_statement() {
    auto made = begin(StatementKind::kFor);
    made->target = target("in");
    if (is_loop(*made->target)) fail_here("loop cannot be what a loop assigns to");
    if (!skip_name("in")) fail_unexpected();
    made->value = tuple(false, false, "recursive");
    if (skip_name("if")) made->test = expression();
    if (is_name("recursive")) fail_here("recursive loops are not supported");
    expect_end(TokenType::kBlockEnd);
    ++loops_;
    made->body = body({"endfor", "else"});
    --loops_;
    if (take().text == "else") made->otherwise = block("endfor");
    return made;
  }

  /// Names with commas between; those of namespaces' attributes where `with_namespace`.
  ExpressionPtr target(std::string_view end_name, bool with_namespace = false) {
    const Level level(*this);
    std::vector<ExpressionPtr> names;
    bool is_tuple = false;
    for (;;) {
      names.push_back(one_target(with_namespace));
      if (!skip_sign(",")) break;
      is_tuple = true;
      if (at_tuple_end(end_name)) break;
    }
    return is_tuple ? make(ExpressionKind::kTuple, std::move(names)) : std::move(names[0]);
  }

  ExpressionPtr one_target(bool with_namespace) {
    if (skip_sign("(")) {
      ExpressionPtr inner = target("", with_namespace);
      expect_sign(")");
      return inner;
    }
    if (with_namespace && ahead().type == TokenType::kSign && ahead().text == ".") {
      const int number = number_of(expect_name());
      ++at_;
      ExpressionPtr made = make(ExpressionKind::kNamespace, {}, expect_name());
      made->name = number;
      return made;
    }
    ExpressionPtr made = make(ExpressionKind::kName, {}, expect_assignable());
    made->name = number_of(made->word);
    return made;
  }

  /// A name that is assigned to.
  std::string expect_assignable() {
    if (is_any_name({"true", "false", "none", "True", "False", "None"})) fail_unexpected();
    // Whether a macro has what these stand for depends on whether it reads them before.
    if (!macros_.empty() && is_any_name({"caller", "varargs", "kwargs"})) {
      fail_here(current().text, " is not supported as a name in a macro");
    }
    return expect_name();
  }

  std::unique_ptr<Statement> set_statement() {
    auto made = begin(StatementKind::kSet);
    made->target = target("", true);
    if (skip_sign("=")) {
      made->value = tuple(false);
      return made;
    }
    made->kind = StatementKind::kSetBlock;
    if (skip_sign("|")) made->value = filters_of_block();
    made->body = block("endset");
    return made;
  }

  ExpressionPtr filters_of_block() {
    ExpressionPtr value = filter(nullptr);
    while (skip_sign("|")) value = filter(std::move(value));
    return value;
  }

  void read_parameters(Macro& macro) {
    expect_sign("(");
    while (!is_sign(")")) {
      if (!macro.parameters.empty()) expect_sign(",");
      if (is_sign(")")) break;
      if (is_any_name({"caller", "varargs", "kwargs"})) fail_here(current().text, " is not supported as a parameter");
      macro.parameter_names.push_back(expect_assignable());
      if (std::count(macro.parameter_names.begin(), macro.parameter_names.end(), macro.parameter_names.back()) > 1) {
        fail_here("a macro with two parameters of one name");
      }
      macro.parameters.push_back(number_of(macro.parameter_names.back()));
      if (skip_sign("=")) {
        macro.defaults.push_back(expression());
      } else if (!macro.defaults.empty()) {
        fail_here("a parameter without default behind one with default");
      }
    }
    expect_sign(")");
  }

  void read_macro_body(Macro& macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    macros_.push_back(&macro);
    macro.body = block(end);
    macros_.pop_back();
    loops_ = loops;
  }

  std::unique_ptr<Statement> macro_statement() {
    auto made = begin(StatementKind::kMacro);
    made->macro = std::make_unique<Macro>();
    made->macro->name = expect_assignable();
    made->target = make(ExpressionKind::kName, {}, made->macro->name);
    made->target->name = number_of(made->macro->name);
    read_parameters(*made->macro);
    read_macro_body(*made->macro, "endmacro");
    return made;
  }

  std::unique_ptr<Statement> call_statement() {
    auto made = begin(StatementKind::kCall);
    made->macro = std::make_unique<Macro>();
    made->macro->name = "caller";
    if (is_sign("(")) read_parameters(*made->macro);
    made->value = expression();
    if (made->value->kind != ExpressionKind::kCall) fail_here("a call is wanted");
    read_macro_body(*made->macro, "endcall");
    return made;
  }

  std::unique_ptr<Statement> with_statement() {
    auto made = begin(StatementKind::kWith);
    while (current().type != TokenType::kBlockEnd) {
      if (!made->targets.empty()) expect_sign(",");
      made->targets.push_back(target(""));
      expect_sign("=");
      made->values.push_back(expression());
    }
    made->body = block("endwith");
    return made;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int level_ = 0, loops_ = 0;
  std::vector<Macro*> macros_;  // that are being read, from the outside in
  std::unordered_map<std::string, int> numbers_;
  Syntax syntax_;
};

}  // namespace

Syntax parse(std::string_view source) {
  if (source.size() > 4 * kMostCharacters) fail(source.size(), " bytes, more than ", 4 * kMostCharacters);
  Syntax syntax = Parser(tokenize(source)).parse();
  find_unset(syntax);
  return syntax;
}

}  // namespace mft::jinja
