"""The Python API, one file per subject. `import mobile_ft` exports its functions, and the command line calls them."""
