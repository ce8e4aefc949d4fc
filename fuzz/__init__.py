"""What finds the files that break a parser: a fuzzer for each format, and what they found."""
