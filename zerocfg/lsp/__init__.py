"""The language server: what editors show of zerocfg while a config is typed. Started by ``zerocfg lsp``."""
