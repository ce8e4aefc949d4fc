/// The C API's training data.

#include "runtime/data/dataset.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/c_api/call.h"

using mft::guarded;
using mft::require;
using mft::require_options;
using mft::require_path;

struct mft_dataset {
  mft::Dataset dataset;
  mutable mft::Exclusive exclusive;

  mft::Exclusive::Call begin_call() const {
    return {exclusive, "busy: another call is using this dataset; wait for its end"};
  }
};

namespace {

/// Throws Error if a text is not valid UTF-8.
std::string json_line(const nlohmann::json& row) {
  try {
    return row.dump();
  } catch (const nlohmann::json::exception&) {
    mft::fail("a text is not valid UTF-8");
  }
}

mft_status add_row(mft_dataset* dataset, const std::function<std::string()>& row) {
  return guarded([&] {
    require(dataset, "dataset");
    const auto call = dataset->begin_call();
    dataset->dataset.add(row());
  });
}

}  // namespace

mft_status mft_dataset_open(const char* bundle_folder, const char* rows_jsonl, mft_dataset** dataset) {
  return guarded([&] {
    require(dataset, "dataset");
    *dataset = nullptr;
    require_path(bundle_folder, "bundle_folder");
    require_path(rows_jsonl, "rows_jsonl");
    *dataset = new mft_dataset{mft::Dataset(bundle_folder, rows_jsonl), {}};
  });
}

void mft_dataset_close(mft_dataset* dataset) { delete dataset; }

mft_status mft_dataset_add_chat(mft_dataset* dataset, const mft_message* messages, size_t count) {
  return add_row(dataset, [&] {
    if (count > 0) require(messages, "messages");
    nlohmann::json list = nlohmann::json::array();
    for (size_t i = 0; i < count; ++i) {
      require(messages[i].role, "role");
      require(messages[i].content, "content");
      list.push_back({{"role", messages[i].role}, {"content", messages[i].content}});
    }
    return json_line({{"messages", list}});
  });
}

mft_status mft_dataset_add_pair(mft_dataset* dataset, const char* prompt, const char* completion) {
  return add_row(dataset, [&] {
    require(prompt, "prompt");
    require(completion, "completion");
    return json_line({{"prompt", prompt}, {"completion", completion}});
  });
}

mft_status mft_dataset_add_text(mft_dataset* dataset, const char* text) {
  return add_row(dataset, [&] {
    require(text, "text");
    return json_line({{"text", text}});
  });
}

mft_status mft_dataset_add_row(mft_dataset* dataset, const char* json) {
  return add_row(dataset, [&] {
    require(json, "json");
    return std::string(json);
  });
}

int64_t mft_dataset_rows(const mft_dataset* dataset) { return dataset == nullptr ? 0 : dataset->dataset.rows(); }

mft_status mft_dataset_write_tokens(const mft_dataset* dataset, const mft_options* options, const char* token_file,
                                    mft_dataset_stats* stats) {
  return guarded([&] {
    require(dataset, "dataset");
    require_options(options, mft_options::kTrain);
    require_path(token_file, "token_file");
    const auto call = dataset->begin_call();
    const mft::DataStats done = dataset->dataset.write_tokens(token_file, mft::make_train_config(options->given));
    if (stats != nullptr) {
      *stats = {done.rows, done.sequences, done.tokens, done.target_tokens, done.truncated, done.dropped, done.bad};
    }
  });
}
