#include "runtime/generate/adapters.h"

#include <algorithm>

namespace mft {

const LoadedAdapter& Adapters::get(const Model& model, const std::string& folder) {
  const std::string& from = folder.empty() ? model.bundle().folder : folder;
  // Before they are read: if they change meanwhile, they are read once more the next time.
  const FileStamp tensors(from + "/adapter_model.safetensors"), config(from + "/adapter_config.json");
  const auto found =
      std::find_if(loaded_.begin(), loaded_.end(), [&](const LoadedAdapter& loaded) { return loaded.folder == from; });
  if (found != loaded_.end() && found->tensors == tensors && found->config == config) {
    loaded_.splice(loaded_.begin(), loaded_, found);
    return *found;
  }
  LoadedAdapter read{from, tensors, config, std::make_shared<Buffer>(model.layout().size * sizeof(float)), {}};
  model.load_adapter_into(folder, read.parameters->floats());
  read.half = HalfAdapter(model.layout(), read.parameters->floats());
  if (found != loaded_.end()) loaded_.erase(found);
  if (loaded_.size() == kMost) loaded_.pop_back();
  loaded_.push_front(std::move(read));
  return loaded_.front();
}

}  // namespace mft
