# Monocypher's C source, which verifies signatures, from PyPI's source archive of `pymonocypher`. pip downloads it once for
# all builds of a checkout, from the index that pip is configured for.
set(MONOCYPHER_ROOT "" CACHE PATH "A folder with Monocypher's monocypher.c, monocypher.h and LICENSE.txt")
if(NOT MONOCYPHER_ROOT)
  set(version_of_monocypher 4.0.3.4)
  set(sha256 5e56e3d3eb770a53e0b9f6274146663c11a11f3d0de5cd48e3be0428d1b07a4a)
  set(name pymonocypher-${version_of_monocypher})
  set(MONOCYPHER_ROOT ${PROJECT_SOURCE_DIR}/build/${name})
  if(NOT EXISTS ${MONOCYPHER_ROOT})
    find_package(Python 3.11 COMPONENTS Interpreter)
    string(RANDOM unique)
    set(folder ${MONOCYPHER_ROOT}.${unique}) # of this build alone, others may be started at the same time
    file(WRITE ${folder}/requirements.txt "pymonocypher==${version_of_monocypher} --hash=sha256:${sha256}\n")
    set(reason "no Python 3.11 or newer was found")
    if(Python_Interpreter_FOUND)
      message(STATUS "Downloading ${name}")
      execute_process(
        COMMAND ${Python_EXECUTABLE} -m pip download -q --no-deps --no-binary pymonocypher --dest ${folder}
                --requirement ${folder}/requirements.txt
        OUTPUT_VARIABLE reason ERROR_VARIABLE reason)
    endif()
    if(EXISTS ${folder}/${name}.tar.gz)
      file(ARCHIVE_EXTRACT INPUT ${folder}/${name}.tar.gz DESTINATION ${folder})
      file(RENAME ${folder}/${name} ${MONOCYPHER_ROOT} RESULT reason)
    endif()
    file(REMOVE_RECURSE ${folder})
    if(NOT EXISTS ${MONOCYPHER_ROOT})
      message(FATAL_ERROR "Monocypher is missing, and pip could not download it: ${reason}\nExtract ${name}.tar.gz, "
                          "the source archive of pymonocypher on PyPI, and give its folder with -DMONOCYPHER_ROOT=FOLDER.")
    endif()
  endif()
endif()
