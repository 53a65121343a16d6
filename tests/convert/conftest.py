from tests.cli.conftest import zerocfg  # noqa: F401
