/// A public key and a signature: PEM, a zero byte, and the 64 bytes that are beside a bundle.json.

#include <algorithm>

#include "fuzz/cpp/fuzz.h"
#include "runtime/bundle/signature.h"

std::vector<std::string> seeds() {
  // RFC 8032, 7.1, test 1: of an empty text.
  static const unsigned char signature[] = {
      0xe5, 0x56, 0x43, 0x00, 0xc3, 0x60, 0xac, 0x72, 0x90, 0x86, 0xe2, 0xcc, 0x80, 0x6e, 0x82, 0x8a,
      0x84, 0x87, 0x7f, 0x1e, 0xb8, 0xe5, 0xd9, 0x74, 0xd8, 0x73, 0xe0, 0x65, 0x22, 0x49, 0x01, 0x55,
      0x5f, 0xb8, 0x82, 0x15, 0x90, 0xa3, 0x3b, 0xac, 0xc6, 0x1e, 0x39, 0x70, 0x1c, 0xf9, 0xb4, 0x6b,
      0xd2, 0x5b, 0xf5, 0xf0, 0x59, 0x5b, 0xbe, 0x24, 0x65, 0x51, 0x41, 0x43, 0x8e, 0x7a, 0x10, 0x0b};
  return {std::string("-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
                      "-----END PUBLIC KEY-----\n") +
          '\0' + std::string(signature, signature + sizeof(signature))};
}

void run(const std::string& data) {
  static const std::string file = mft_fuzz::scratch_folder() + "/bundle.json";
  const size_t end = std::min(data.find('\0'), data.size());
  mft::trust_key(data.substr(0, end));
  mft_fuzz::write_file(file + ".sig", data.substr(std::min(end + 1, data.size())));
  mft::check_signature(file, "");
}
