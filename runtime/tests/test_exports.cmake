# That LIBRARY exports the functions of mobile_ft.h, all of them and nothing else.
execute_process(COMMAND ${NM} -D --defined-only --format=just-symbols ${LIBRARY} OUTPUT_VARIABLE exported
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" exported "${exported}")
list(SORT exported)
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../c_api/mobile_ft.h lines REGEX "^MFT_API ")
list(TRANSFORM lines REPLACE ".*[ *](mft_[a-z_0-9]+)\\(.*" "\\1" OUTPUT_VARIABLE declared)
list(SORT declared)
if(NOT exported STREQUAL declared)
  message(FATAL_ERROR "exported: ${exported}\ndeclared: ${declared}")
endif()
