/// safetensors_json.cpp: reads the header event by event (SAX). No document is built. So nesting that is too deep is
/// refused at its first bracket, and a key that comes twice is noticed, which a document would hide.
#include "io/safetensors_json.hpp"

#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "io/text.hpp"

namespace falchion::io {
namespace {

using nlohmann::json;

/// Hands the text to the parser and counts the characters that it takes, since SAX events carry no position.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  std::size_t* taken;

  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    ++at;
    ++*taken;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
};

/// The events of nlohmann::json's parser. Each returns false to stop, with `why` set.
class HeaderEvents {
 public:
  HeaderEvents(std::size_t file_offset, std::vector<SafetensorsEntry>* entries, Metadata* metadata)
      : file_offset_(file_offset), entries_(*entries), metadata_(*metadata) {}

  std::string why;
  std::size_t taken = 0;

  bool start_object(std::size_t /*elements*/) {
    if (place_ == Place::outside) return enter(Place::top);
    if (place_ != Place::top) return fail(here() + ": an object where there can be none");
    if (key_ == "__metadata__") return enter(Place::metadata);
    entries_.push_back({key_, {}, {}, 0, 0});
    has_dtype_ = has_shape_ = has_offsets_ = false;
    return enter(Place::entry);
  }

  bool end_object() {
    if (place_ == Place::entry) {
      const char* missing = !has_dtype_ ? "dtype" : !has_shape_ ? "shape" : !has_offsets_ ? "data_offsets" : nullptr;
      if (missing != nullptr) return fail(here() + " has no '" + missing + "'");
    }
    return enter(place_ == Place::top ? Place::outside : Place::top);
  }

  bool key(std::string& text) {
    if (place_ == Place::entry) {
      bool* seen = text == "dtype" ? &has_dtype_ : text == "shape" ? &has_shape_ : nullptr;
      if (text == "data_offsets") seen = &has_offsets_;
      if (seen == nullptr) return fail(here() + " has an unknown field " + in_quotes(text));
      if (std::exchange(*seen, true)) return fail(here() + " has a second " + in_quotes(text));
    } else {
      std::set<std::string>& names = place_ == Place::metadata ? metadata_keys_ : names_;
      if (!names.insert(text).second) return fail(in_quotes(text) + " comes a second time");
    }
    (place_ == Place::entry ? field_ : key_) = std::move(text);
    return true;
  }

  bool start_array(std::size_t /*elements*/) {
    if (place_ == Place::entry && field_ == "shape") return enter(Place::shape);
    if (place_ == Place::entry && field_ == "data_offsets") {
      offsets_ = 0;
      return enter(Place::offsets);
    }
    return fail(here() + ": a list where there can be none");
  }

  bool end_array() {
    if (place_ == Place::offsets && offsets_ != 2)
      return fail(here() + " has " + std::to_string(offsets_) + " data_offsets, not 2");
    return enter(Place::entry);
  }

  bool string(std::string& text) {
    if (place_ == Place::metadata) {
      metadata_[key_] = std::move(text);
    } else if (place_ == Place::entry && field_ == "dtype") {
      entries_.back().dtype = std::move(text);
    } else {
      return fail(here() + ": a string where there can be none");
    }
    return true;
  }

  bool number_unsigned(std::uint64_t number) {
    if (place_ == Place::shape) {
      if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return fail(here() + ": extent " + std::to_string(number) + " is above 2^63 - 1");
      }
      if (entries_.back().shape.size() == kMaxAxes)
        return fail(here() + " has more than " + std::to_string(kMaxAxes) + " axes");
      entries_.back().shape.push_back(static_cast<std::int64_t>(number));
      return true;
    }
    if (place_ == Place::offsets) {
      if (++offsets_ > 2) return fail(here() + " has more than 2 data_offsets");
      (offsets_ == 1 ? entries_.back().begin : entries_.back().end) = number;
      return true;
    }
    return fail(here() + ": a number where there can be none");
  }

  bool number_integer(std::int64_t number) { return fail(here() + ": negative number " + std::to_string(number)); }
  bool number_float(double /*number*/, const std::string& text) {
    return fail(here() + ": " + in_quotes(text) + " is no whole number below 2^64");
  }
  bool null() { return fail(here() + ": a null where there can be none"); }
  bool boolean(bool /*value*/) { return fail(here() + ": a boolean where there can be none"); }
  bool binary(json::binary_t& /*value*/) { return fail("binary data where there can be none"); }
  bool parse_error(std::size_t /*position*/, const std::string& token, const nlohmann::detail::exception& /*error*/) {
    return fail("the header is not JSON: unexpected " + (token.empty() ? "end" : in_quotes(token)));
  }

 private:
  enum class Place { outside, top, metadata, entry, shape, offsets };

  bool enter(Place place) {
    place_ = place;
    return true;
  }

  std::string here() const {
    if (place_ == Place::outside) return "the header";
    if (place_ == Place::top || place_ == Place::metadata) return in_quotes(key_);
    return in_quotes(entries_.back().name);
  }

  bool fail(std::string what) {
    why = std::move(what) + ", near offset " + std::to_string(file_offset_ + taken);
    return false;
  }

  std::size_t file_offset_;
  std::vector<SafetensorsEntry>& entries_;
  Metadata& metadata_;
  Place place_ = Place::outside;
  std::string key_, field_;
  std::set<std::string> names_, metadata_keys_;
  int offsets_ = 0;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
};

}  // namespace

Status parse_safetensors_json(std::string_view text, std::size_t file_offset, const std::string& file,
                              std::vector<SafetensorsEntry>* entries, Metadata* metadata) {
  // The format demands that the header begins with '{', and the JSON parser would skip a byte order mark.
  if (text.empty() || text.front() != '{') {
    return refuse(file, "the header begins with " + in_quotes(text.substr(0, 1)) + " at offset " +
                            std::to_string(file_offset) + ", not with '{'");
  }
  HeaderEvents events(file_offset, entries, metadata);
  const CountingIterator first{text.data(), &events.taken}, last{text.data() + text.size(), &events.taken};
  if (!json::sax_parse(first, last, &events)) return refuse(file, events.why);
  return {};
}

bool to_json_string(const std::string& text, std::string* out) {
  try {
    *out = json(text).dump();
    return true;
  } catch (const json::exception&) {  // dump throws it on text that is not UTF-8
    return false;
  }
}

}  // namespace falchion::io
