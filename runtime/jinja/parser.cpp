#include "runtime/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "runtime/base/error.h"
#include "runtime/jinja/expression_parser.h"
#include "runtime/jinja/lexer.h"
#include "runtime/jinja/variables.h"

namespace mft::jinja {
namespace {

constexpr size_t kMostCharacters = size_t{1} << 18;

/// Parses statements and whole templates.
class Parser : ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Syntax parse() {
    syntax_.body = body({});
    return std::move(syntax_);
  }

 private:
  /// Parses up to the name of a tag in `ends`, or up to the end of the template if `ends` is empty.
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

  /// Parses the text up to the tag `end`, and stops at the end of that tag.
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
      made->macro = std::make_unique<Macro>();  // Transformers compiles it as the body of a call
      made->macro->name = "caller";
      read_macro_body(*made->macro, "endgeneration");
      if (made->macro->takes_caller || made->macro->takes_varargs || made->macro->takes_kwargs) {
        fail_here("caller, varargs and kwargs are not supported in a generation block");
      }
      return made;
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) fail_here(word, " is outside of a loop");
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
    if (is_loop(*made->target)) fail_here("a loop cannot assign to the name loop");
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

  /// Parses names separated by commas; `with_namespace` allows attributes of namespaces.
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

  /// Parses the name of an assignment.
  std::string expect_assignable() {
    if (is_any_name({"true", "false", "none", "True", "False", "None"})) fail_unexpected();
    // Whether a macro has these variables depends on whether it reads them before.
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
        fail_here("a macro has two parameters with the same name");
      }
      macro.parameters.push_back(number_of(macro.parameter_names.back()));
      if (skip_sign("=")) {
        macro.defaults.push_back(expression());
      } else if (!macro.defaults.empty()) {
        fail_here("a parameter without default follows one with a default");
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
    if (made->value->kind != ExpressionKind::kCall) fail_here("expected a call");
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

  int loops_ = 0;
};

}  // namespace

Syntax parse(std::string_view source) {
  if (source.size() > 4 * kMostCharacters)
    fail("has ", source.size(), " bytes; at most ", 4 * kMostCharacters, " are supported");
  Syntax syntax = Parser(tokenize(source)).parse();
  find_unset(syntax);
  return syntax;
}

}  // namespace mft::jinja
