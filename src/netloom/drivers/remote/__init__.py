"""Programs that run on other hosts, over SSH, where nothing of this project is installed.

    bootstrap.py   runs on the host: reads a program from standard input and calls its `main(argv, document)`
    protocol.py    what is sent to it, and what it prints: pure
    ssh.py         one program on one host; only this module imports asyncssh
    hosts.py       one program on many hosts at once
    ovn.py         runs on the host: installs and configures Open vSwitch and OVN

A host needs python3 and nothing else. The programs import the standard library only, in the Python of any supported
Debian or Ubuntu.
"""
