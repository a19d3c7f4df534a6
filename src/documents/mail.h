// The text of an e-mail (.eml: RFC 5322 with MIME).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "documents/document.h"

namespace ballast {

/// Whether a file of this name is an e-mail.
bool is_mail_name(const std::string& name);

/// Who wrote what to whom when, and the text: of alternatives the plain one, else that of the web
/// page. Attachments that read_document() reads follow, each a part with its own name; others are
/// named. `name`, `path`: see read_document(). Any bytes are some message.
std::vector<DocumentPart> mail_parts(std::string_view bytes, const std::string& name,
                                     const std::string& path);

}  // namespace ballast
