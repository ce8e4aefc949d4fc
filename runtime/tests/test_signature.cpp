// Ed25519 signatures of files against the vectors of RFC 8032, and all that is none of the trusted key's.

#include "runtime/bundle/signature.h"
#include "runtime/tests/test_support.h"

using namespace mft;
using namespace mft_test;

namespace {

struct Vector {
  const char* key;  // in base64, without what all begin with
  std::string text;
  const char* signature;
};

// RFC 8032, 7.1: tests 1 to 3, and that of SHA-512("abc"), the bytes of whose text are put in below.
const Vector kVectors[] = {
    {"11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe246"
     "551"
     "41438e7a100b"},
    {"PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=", "\x72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb"
     "00d"
     "291612bb0c00"},
    {"/FHNjmIYoaONpH7QAjDwWAgW7RO6MwOsXeuRFUiQgCU=", "\xaf\x82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc"
     "027"
     "beceea1ec40a"},
    {"7Bcrk61eVjv0kyxw4SRQNMNUZ+8u/U1k6/gZaDRn4r8=",
     "\xdd\xaf\x35\xa1\x93\x61\x7a\xba\xcc\x41\x73\x49\xae\x20\x41\x31\x12\xe6\xfa\x4e\x89\xa9\x7e\xa2\x0a\x9e\xee\xe6"
     "\x4b\x55\xd3\x9a\x21\x92\x99\x2a\x27\x4f\xc1\xa8\x36\xba\x3c\x23\xa3\xfe\xeb\xbd\x45\x4d\x44\x23\x64\x3c\xe8\x0e"
     "\x2a\x9a\xc9\x4f\xa5\x4c\xa4\x9f",
     "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad"
     "9be"
     "f1177331a704"}};

// The third's, with the order of the curve's group added to S, which stays under 2^256: the same equation holds.
const char* const kMalleable =
    "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac05d391b0a77904e98404ef037747a56e4a7c15e9716ed28dc0"
    "27"
    "beceea1ec41a";

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string pem(const std::string& body) {
  return "-----BEGIN PUBLIC KEY-----\n" + body + "\n-----END PUBLIC KEY-----\n";
}

std::string der(const Vector& vector) { return std::string("MCowBQYDK2VwAyEA") + vector.key; }

}  // namespace

int main() {
  const TempFolder folder;
  const std::string file = folder / "bundle.json";
  check_signature(file, "anything");  // no key is trusted yet

  const std::string good = der(kVectors[0]);
  for (const std::string& bad : {std::string(), good, pem(""), pem(good.substr(1)), pem(good + "A"),
                                 pem(good.substr(0, 59) + "A"), pem("MCowBQYDK2VuAyEA" + good.substr(16)),
                                 pem(good.substr(0, 20) + "*" + good.substr(21)), "-----BEGIN PUBLIC KEY-----\n" + good,
                                 "-----BEGIN PRIVATE KEY-----\n" + good + "\n-----END PRIVATE KEY-----\n"}) {
    CHECK_ERROR(trust_key(bad), "must be an Ed25519 public key in PEM");
  }
  check_signature(file, "anything");  // none of those is trusted

  for (const Vector& vector : kVectors) {
    trust_key(pem(der(vector)));
    const std::string signature = bytes_of(vector.signature);
    write_file(file + ".sig", signature);
    check_signature(file, vector.text);
    CHECK_ERROR(check_signature(file, vector.text + "x"), "bundle.json: the signature does not match the trusted key");
    for (size_t bit = 0; bit < 8 * signature.size(); ++bit) {
      std::string wrong = signature;
      wrong[bit / 8] = static_cast<char>(wrong[bit / 8] ^ 1 << bit % 8);
      write_file(file + ".sig", wrong);
      CHECK_ERROR(check_signature(file, vector.text), "the signature does not match the trusted key");
    }
  }
  write_file(file + ".sig", bytes_of(kVectors[0].signature));
  CHECK_ERROR(check_signature(file, kVectors[0].text),
              "the signature does not match the trusted key");  // by another key

  trust_key("of whom\r\n-----BEGIN PUBLIC KEY-----\r\n" + der(kVectors[2]) + "\r\n-----END PUBLIC KEY-----");
  write_file(file + ".sig", bytes_of(kVectors[2].signature));
  check_signature(file, kVectors[2].text);
  write_file(file + ".sig", bytes_of(kMalleable));
  CHECK_ERROR(check_signature(file, kVectors[2].text), "the signature does not match the trusted key");

  write_file(file + ".sig", bytes_of(kVectors[2].signature) + "x");
  CHECK_ERROR(check_signature(file, kVectors[2].text), "bundle.json.sig: has 65 bytes; an Ed25519 signature has 64");
  write_file(file + ".sig", "");
  CHECK_ERROR(check_signature(file, kVectors[2].text), "bundle.json.sig: has 0 bytes");
  std::filesystem::remove(file + ".sig");
  CHECK_ERROR(check_signature(file, kVectors[2].text), "the bundle is not signed");
  return finish();
}
