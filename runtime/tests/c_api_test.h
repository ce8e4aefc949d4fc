#ifndef C_API_TEST_H
#define C_API_TEST_H

/* What the tests of the C API share: checks that carry on, and a small token file. */

#include <stdio.h>
#include <string.h>

#include "mobile_ft.h"

static int failures = 0;

#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) {                                              \
      ++failures;                                                    \
      printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                \
  } while (0)

/* The call fails with this status, and the one line about it holds `part`. */
#define CHECK_FAILS(call, status, part)                                                                \
  do {                                                                                                 \
    const mft_status check_status = (call);                                                            \
    if (check_status != (status) || strstr(mft_last_error(), part) == NULL ||                          \
        strchr(mft_last_error(), '\n') != NULL) {                                                      \
      ++failures;                                                                                      \
      printf("%s:%d: %s gave %d \"%s\"\n", __FILE__, __LINE__, #call, check_status, mft_last_error()); \
    }                                                                                                  \
  } while (0)

#define CHECK_OK(call)                                                        \
  do {                                                                        \
    if ((call) != MFT_OK) {                                                   \
      ++failures;                                                             \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, mft_last_error()); \
    }                                                                         \
  } while (0)

/* A token file of one sequence, 0 1 2 ... 7, every token predicting the next (docs/reference/bundle_format.md). */
static void write_tokens(const char* path) {
  char header[512];
  int32_t values[3][8];
  const int64_t offsets[2] = {0, 8};
  uint64_t size;
  FILE* file = fopen(path, "wb");
  for (int32_t i = 0; i < 8; ++i) {
    values[0][i] = values[2][i] = i;
    values[1][i] = i + 1;
  }
  size = (uint64_t)snprintf(header, sizeof(header), "%s%s%s%s",
                            "{\"tokens\":{\"dtype\":\"I32\",\"shape\":[8],\"data_offsets\":[0,32]},",
                            "\"targets\":{\"dtype\":\"I32\",\"shape\":[8],\"data_offsets\":[32,64]},",
                            "\"positions\":{\"dtype\":\"I32\",\"shape\":[8],\"data_offsets\":[64,96]},",
                            "\"offsets\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[96,112]}}");
  while (size % 8 != 0) header[size++] = ' ';
  fwrite(&size, 1, sizeof(size), file);
  fwrite(header, 1, size, file);
  fwrite(values, 1, sizeof(values), file);
  fwrite(offsets, 1, sizeof(offsets), file);
  fclose(file);
}

#endif /* C_API_TEST_H */
