"""The command that installs shell completion: cyclopts' own, imported when it is called."""

from cyclopts.completion.install import create_install_completion_command

from cellrepro.cli import app

install = create_install_completion_command(app.install_completion, add_to_startup=False)
