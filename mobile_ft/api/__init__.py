"""The Python library, one file a subject; `import mobile_ft` gives its functions, and the command line calls them."""
