#include "runtime/bundle/signature.h"

#include <monocypher.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/sha512.h"

namespace mft {
namespace {

using Key = std::array<uint8_t, 32>;

constexpr size_t kSignatureSize = 64;
// An Ed25519 key in DER (RFC 8410) has 12 fixed bytes, in base64 kBegin, and the 32 bytes of the key, 44 letters.
constexpr const char* kBegin = "MCowBQYDK2VwAyEA";
constexpr size_t kLetters = 44;

std::mutex mutex;
std::optional<Key> trusted;

/// Returns the base64 text between PEM's two lines, without line ends, or "" if there are no such lines.
std::string body_of(const std::string& pem) {
  const std::string head = "-----BEGIN PUBLIC KEY-----";
  const size_t begin = pem.find(head);
  if (begin == std::string::npos) return "";
  const size_t end = pem.find("-----END PUBLIC KEY-----", begin);
  if (end == std::string::npos) return "";
  std::string body;
  for (size_t i = begin + head.size(); i < end; ++i) {
    if (pem[i] != '\n' && pem[i] != '\r') body += pem[i];
  }
  return body;
}

std::optional<Key> key_of(const std::string& base64) {
  static const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (base64.size() != kLetters || base64.back() != '=') return std::nullopt;
  Key key;
  uint32_t bits = 0, count = 0;
  size_t size = 0;
  for (size_t i = 0; i + 1 < base64.size(); ++i) {
    const size_t value = letters.find(base64[i]);
    if (value == std::string::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    key[size++] = static_cast<uint8_t>(bits >> count);
  }
  return key;
}

bool made_by(const Key& key, const std::string& signature, const std::string& text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(signature.data());
  const auto hash = sha512({{bytes, 32}, {key.data(), key.size()}, {text.data(), text.size()}});
  std::array<uint8_t, 32> reduced;
  crypto_eddsa_reduce(reduced.data(), hash.data());
  return crypto_eddsa_check_equation(bytes, key.data(), reduced.data()) == 0;
}

}  // namespace

void trust_key(const std::string& pem) {
  const std::string body = body_of(pem), begin = kBegin;
  const auto key = body.rfind(begin, 0) == 0 ? key_of(body.substr(begin.size())) : std::nullopt;
  if (!key) fail("must be an Ed25519 public key in PEM; write one with `openssl pkey -in KEY -pubout`");
  const std::lock_guard<std::mutex> lock(mutex);
  trusted = key;
}

void check_signature(const std::string& path, const std::string& text) {
  std::optional<Key> key;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    key = trusted;
  }
  if (!key) return;
  const std::string file = path + ".sig";
  if (!file_exists(file))
    fail(file, ": no such file; the bundle is not signed, but only bundles signed with the trusted key are accepted");
  const uint64_t size = file_size(file);
  if (size != kSignatureSize) fail(file, ": has ", size, " bytes; an Ed25519 signature has ", kSignatureSize);
  if (!made_by(*key, read_text(file, kSignatureSize), text)) {
    fail(path,
         ": the signature does not match the trusted key; the bundle was signed with another key or changed since");
  }
}

}  // namespace mft
