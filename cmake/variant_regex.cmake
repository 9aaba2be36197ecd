# What FALCHION_VARIANTS chooses. It has a file of its own so that `cmake -P tests/variants_test.cmake` can test it.

# Of `lines`, which are those of variants.def, those whose variant the regex matches in whole words: 'amx' is not
# amx_emulated, 'f16' not bf16, 'attention_forward' not linear_attention_forward. A space at the end of the regex says no
# more than that. `none` keeps none; any other regex that keeps none is an error.
function(falchion_keep_matching lines regex out)
  set(kept "")
  string(REGEX REPLACE "(\\[ \\]| )+$" "" words "${regex}")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^VARIANT\\(|\\).*$" "" variant "${line}")
    string(REGEX REPLACE ", *" " " variant "${variant}")
    if(NOT regex STREQUAL "none" AND variant MATCHES "(^| )(${words})( |$)")
      list(APPEND kept "${line}")
    endif()
  endforeach()
  if(kept STREQUAL "" AND NOT regex STREQUAL "none")
    message(FATAL_ERROR "FALCHION_VARIANTS = '${regex}' matches no variant of src/variants.def. It is a regex on whole words "
      "of names such as 'attention_forward cpu avx2 bf16 0'. An empty one builds all of them, and 'none' builds none.")
  endif()
  set(${out} "${kept}" PARENT_SCOPE)
endfunction()
