#pragma once

#include <string>

namespace mft {

/// Makes this process accept only bundles that are signed with this Ed25519 key (RFC 8032). `pem` is the public key, in
/// the format of `openssl pkey -pubout`. Another call replaces the key; no call removes it. Throws Error if the text is
/// not such a key.
void trust_key(const std::string& pem);

/// Checks the signature of a bundle's description, the 64 bytes of the file `path`.sig. `text` is the content of the
/// file `path`. Throws Error if it is not the trusted key's signature. Does nothing if no key is trusted.
void check_signature(const std::string& path, const std::string& text);

}  // namespace mft
