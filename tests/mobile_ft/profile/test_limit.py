from pathlib import Path

import pytest

from mobile_ft.profile.limit import cgroup_parents

V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V1_CPU = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct"
V2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot"
CONTAINER = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro,nosuid master:9 - cgroup cgroup rw,memory"


@pytest.mark.parametrize(
    ("mountinfo", "own", "expected"),
    [
        (
            f"{V1_CPU}\n{V1}",
            "4:memory:/jobs/1\n1:cpu,cpuacct:/other",
            [("cgroup-v1", "/sys/fs/cgroup/memory/jobs/1")],
        ),
        (V1, "4:memory:/", [("cgroup-v1", "/sys/fs/cgroup/memory")]),
        (
            V2,
            "0::/user.slice/app.scope",
            [
                ("cgroup-v2", "/sys/fs/cgroup/user.slice/app.scope"),
                ("cgroup-v2", "/sys/fs/cgroup/user.slice"),
            ],
        ),
        (V2, "0::/", [("cgroup-v2", "/sys/fs/cgroup")]),
        (CONTAINER, "4:memory:/docker/abc", [("cgroup-v1", "/sys/fs/cgroup/memory")]),
        (CONTAINER, "4:memory:/docker/abc/inner", [("cgroup-v1", "/sys/fs/cgroup/memory/inner")]),
        (CONTAINER, "4:memory:/elsewhere", [("cgroup-v1", "/sys/fs/cgroup/memory")]),
        (V1_CPU, "1:cpu,cpuacct:/", []),
    ],
)
def test_where_a_cgroup_might_be_made(mountinfo: str, own: str, expected: list[tuple[str, str]]) -> None:
    assert cgroup_parents(mountinfo, own) == [(version, Path(path)) for version, path in expected]
