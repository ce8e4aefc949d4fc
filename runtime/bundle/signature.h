#pragma once

#include <string>

namespace mft {

/// From now on this process opens bundles only where they are signed with this Ed25519 key (RFC 8032): `pem` is the
/// public one, as `openssl pkey -pubout` writes it. Another call trusts another key in its place, none takes it back.
/// Throws Error where the text is no such key.
void trust_key(const std::string& pem);

/// Holds a bundle's description, of which `text` is the content and `path` the file, against its signature, the 64
/// bytes of the file `path`.sig. Throws Error where that is not the trusted key's; does nothing where none is.
void check_signature(const std::string& path, const std::string& text);

}  // namespace mft
