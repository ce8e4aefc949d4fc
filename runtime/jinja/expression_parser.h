#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/jinja/lexer.h"
#include "runtime/jinja/syntax.h"

namespace mft::jinja {

/// Parses expressions by recursive descent, like Jinja's own parser. It is the base of the parser of statements.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens);

 protected:
  static constexpr int kMostDepth = 150;  // maximum nesting of expressions and of statements

  /// Counts the levels of the parser's recursion during its lifetime.
  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.level_ > kMostDepth) parser_.fail_here("nested deeper than ", kMostDepth);
    }
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

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

  int number_of(const std::string& name);

  // Nodes.

  ExpressionPtr make(ExpressionKind kind, std::vector<ExpressionPtr> parts = {}, std::string word = "");

  // Expressions.

  ExpressionPtr expression(bool with_condition = true);
  /// Parses expressions separated by commas, or one expression.
  ExpressionPtr tuple(bool in_brackets, bool with_condition = true, std::string_view end_name = "");
  bool at_tuple_end(std::string_view end_name) const;
  ExpressionPtr filter(ExpressionPtr value);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int level_ = 0;
  std::vector<Macro*> macros_;  // macros that are being parsed, from the outermost
  std::unordered_map<std::string, int> numbers_;
  Syntax syntax_;

 private:
  void deepen(Expression& expression, const ExpressionPtr& part) const;
  ExpressionPtr pair(ExpressionKind kind, ExpressionPtr one, ExpressionPtr other, std::string word = "");
  ExpressionPtr single(ExpressionKind kind, ExpressionPtr one, std::string word = "");
  ExpressionPtr constant(Constant value);
  ExpressionPtr name(const std::string& word);

  ExpressionPtr condition();
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  std::string comparison_word();
  /// Parses operators of the same precedence: operands of `next` with any of the signs between them.
  template <typename Next>
  ExpressionPtr chain(std::initializer_list<std::string_view> signs, Next next);
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filter);
  ExpressionPtr primary();
  int64_t integer(const std::string& text) const;
  double real(const std::string& text) const;
  std::vector<ExpressionPtr> sequence(std::string_view end);
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr subscript(ExpressionPtr value);
  void read_arguments(Expression& made);
  ExpressionPtr call(ExpressionPtr callee);
  ExpressionPtr test(ExpressionPtr value);
  ExpressionPtr filters_and_tests(ExpressionPtr value);
};

}  // namespace mft::jinja
