// Guesses of an answer's next tokens: what they are, and that they stop where they do not pay.

#include "runtime/generate/lookahead.h"
#include "runtime/tests/test_support.h"

using namespace mft_test;
using mft::Lookahead;
using Tokens = std::vector<int64_t>;

namespace {

void cost(Lookahead& lookahead, double more) {
  for (int i = 0; i < 50; ++i) {
    lookahead.took(1, 1.0);
    lookahead.took(3, 1.0 + 2 * more);
  }
}

void test_guesses() {
  Lookahead lookahead({1, 2, 3, 4, 5, 6, 1, 2, 3, 9, 8, 7, 5, 2});
  cost(lookahead, 0.01);
  CHECK(lookahead.guesses(7).empty());
  for (const int64_t token : {1, 2, 3}) lookahead.add(token);
  CHECK((lookahead.guesses(2) == Tokens{9, 8}));  // as it went on the last time
  CHECK((lookahead.guesses(1) == Tokens{9}));
  CHECK(lookahead.guesses(0).empty());
  lookahead.add(9);
  CHECK((lookahead.guesses(1) == Tokens{8}));
  lookahead.add(4);  // wrong: 3, 9, 4 are new
  CHECK(lookahead.guesses(7).empty());
  CHECK(Lookahead({1, 2}).guesses(7).empty());
  CHECK(Lookahead({1, 1, 1}).guesses(7).empty());
}

void test_what_pays() {
  Tokens text;
  for (int64_t i = 0; i < 40; ++i) text.insert(text.end(), {1, 2, 3, 4});
  Lookahead right(text), wrong(text), dear(text);
  for (Lookahead* lookahead : {&right, &wrong}) cost(*lookahead, 0.2);
  cost(dear, 1.0);
  for (int i = 0; i < 10; ++i) {
    for (const int64_t token : {1, 2, 3, 4}) {
      (void)right.guesses(7), right.add(token);
      (void)dear.guesses(7), dear.add(token);
    }
    (void)wrong.guesses(7);
    for (const int64_t token : {1, 2, 3, 100 + i}) (void)wrong.guesses(7), wrong.add(token);
  }
  CHECK((right.guesses(7) == Tokens{1, 2, 3, 4}));  // the text ends there
  CHECK(dear.guesses(7).empty());
  wrong.add(1), wrong.add(2), wrong.add(3);
  CHECK(wrong.guesses(7).size() <= 1);
}

}  // namespace

int main() {
  test_guesses();
  test_what_pays();
  return finish();
}
