/// A learner's folder: state.json on the first line, its rows on the others.

#include <filesystem>

#include "fuzz/cpp/fuzz.h"
#include "runtime/learn/learner.h"

namespace {

std::string folder() { return mft_fuzz::scratch_folder() + "/learner"; }

}  // namespace

std::vector<std::string> seeds() {
  mft::LearnerState state;
  std::filesystem::create_directories(folder());
  state.folder = folder();
  state.loss = "sft";
  state.held_out = 0.2;
  state.rows = {{"a", 1, R"({"text": "a"})"}, {"b", 2, R"({"text": "b"})", 3}};
  state.gone = {{"0123456789abcdef", 1}};
  mft::Night night{1, {{"lr", "0.1"}}, 1, 0, {}};
  night.verdict.adopted = true;
  state.nights = {night};
  state.versions = {{1, 0, 1, "versions/1", {"a"}}};
  state.current = 1;
  mft::write_learner_state(state);
  std::string json = mft_fuzz::read_file(folder() + "/state.json");
  for (char& c : json) c = c == '\n' ? ' ' : c;
  return {json + "\n" + mft_fuzz::read_file(folder() + "/" + state.rows_file)};
}

void run(const std::string& data) {
  std::filesystem::create_directories(folder());
  const size_t end = std::min(data.find('\n'), data.size());
  mft_fuzz::write_file(folder() + "/state.json", data.substr(0, end));
  mft_fuzz::write_file(folder() + "/rows-1.jsonl", data.substr(std::min(end + 1, data.size())));
  const mft::LearnerState state = mft::read_learner_state(folder());
  mft::text_of(mft::describe(state));
  mft::remove_leftovers(state);
  mft::learner_options(folder(), {});
}
