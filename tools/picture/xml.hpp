// tools/picture/xml.hpp: text inside XML, for every SVG and HTML that the command writes.
#pragma once

#include <string>

namespace falchion::tools {

/// Returns the text as it must be written between tags or in an attribute. Control characters are dropped, because XML
/// has none.
std::string xml_text(const std::string& text);

}  // namespace falchion::tools
