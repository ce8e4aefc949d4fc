"""Holds an app's manifest, resources and classes against each other, as neither the compiler nor aapt2 does:
check_app.py APP_SOURCE CLASSES..., where CLASSES are folders of class files."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ANDROID = "{http://schemas.android.com/apk/res/android}"
NAMESPACE = "ai.mobileft.demo"

# Components by the class that they extend, with the manifest's element.
COMPONENTS = {
    "android.app.Activity": "activity",
    "android.app.Service": "service",
    "android.app.job.JobService": "service",
    "android.app.Application": "application",
}

# What a call or a name in the sources needs of the manifest.
PERMISSIONS = {
    r"\bstartForeground\(": "android.permission.FOREGROUND_SERVICE",
    r"\.newWakeLock\(": "android.permission.WAKE_LOCK",
    r"\.setPersisted\(true\)": "android.permission.RECEIVE_BOOT_COMPLETED",
    r"permission\.POST_NOTIFICATIONS": "android.permission.POST_NOTIFICATIONS",
}

FOREGROUND_TYPES = {
    "specialUse": "android.permission.FOREGROUND_SERVICE_SPECIAL_USE",
    "dataSync": "android.permission.FOREGROUND_SERVICE_DATA_SYNC",
}


def parents(classes: list[Path]) -> dict[str, str]:
    """What each class extends."""
    files = [str(file) for folder in classes for file in folder.rglob("*.class")]
    listing = subprocess.run(["javap", "-private", *files], capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"class ([\w.$]+)(?:<[^{]*?>)? extends ([\w.$]+)", listing))


def check_components(manifest: ET.Element, extends: dict[str, str]) -> list[str]:
    errors = []
    declared = {}
    for element in ["activity", "service", "receiver", "provider", "application"]:
        for entry in manifest.iter(element):
            name = entry.get(ANDROID + "name", "")
            declared[NAMESPACE + name if name.startswith(".") else name] = element
            if element in ("activity", "service") and entry.get(ANDROID + "exported") is None:
                errors.append(f"AndroidManifest.xml: {name} does not say whether it is exported")
    for name, element in declared.items():
        if COMPONENTS.get(extends.get(name, "")) != element:
            errors.append(f"AndroidManifest.xml: there is no class {name} that is of kind {element}")
    for name, parent in extends.items():
        if parent in COMPONENTS and name not in declared:
            errors.append(f"AndroidManifest.xml: {name} is missing")
    for service in manifest.iter("service"):
        name = service.get(ANDROID + "name", "")
        full = NAMESPACE + name if name.startswith(".") else name
        bind = "android.permission.BIND_JOB_SERVICE"
        if extends.get(full) == "android.app.job.JobService" and service.get(ANDROID + "permission") != bind:
            errors.append(f"AndroidManifest.xml: {name} needs the permission {bind}")
    return errors


def check_permissions(manifest: ET.Element, sources: str) -> list[str]:
    given = {entry.get(ANDROID + "name") for entry in manifest.iter("uses-permission")}
    needed = {permission for pattern, permission in PERMISSIONS.items() if re.search(pattern, sources)}
    types = [entry.get(ANDROID + "foregroundServiceType", "") for entry in manifest.iter("service")]
    needed |= {FOREGROUND_TYPES[name] for type_ in types for name in type_.split("|") if name}
    errors = [f"AndroidManifest.xml: the permission {name} is missing" for name in needed - given]
    errors += [f"AndroidManifest.xml: nothing needs the permission {name}" for name in given - needed]
    if re.search(r"\bstartForeground\(", sources) and not any(types):
        errors.append("AndroidManifest.xml: no service has a foregroundServiceType")
    return errors


def check_resources(source: Path, sources: str) -> list[str]:
    """All that is defined is used."""
    texts = [file.read_text(encoding="utf-8") for file in source.rglob("*.xml")]
    xml = "\n".join(texts)
    errors = []
    defined = set(re.findall(r"<(string|plurals|style) name=\"(\w+)\"", xml))
    defined |= {("drawable", file.stem) for file in source.glob("res/drawable*/*")}
    defined |= {("layout", file.stem) for file in source.glob("res/layout*/*")}
    defined |= {("xml", file.stem) for file in source.glob("res/xml/*")}
    for kind, name in sorted(defined):
        if not re.search(rf"@{kind}/{name}\b", xml) and not re.search(rf"R\.{kind}\.{name}\b", sources):
            errors.append(f"{kind} {name} is not used")
    for name in sorted(set(re.findall(r'android:id="@\+id/(\w+)"', xml))):
        if not re.search(rf"R\.id\.{name}\b", sources) and not re.search(rf"labelFor=\"@\+id/{name}\"", xml):
            errors.append(f"id {name} is not used")
    for text in re.findall(r'android:(?:text|hint|contentDescription)="([^"@?][^"]*)"', xml):
        errors.append(f'"{text}" belongs into strings.xml')
    return errors


def check_layouts(source: Path, sources: str) -> list[str]:
    """Each id once, each looked up in the code is there, and its class is the one that the code takes it for."""
    errors = []
    kinds = {}
    for file in source.glob("res/layout*/*.xml"):
        views = list(ET.parse(file).getroot().iter())
        labelled = {view.get(ANDROID + "labelFor", "").rpartition("/")[2] for view in views}
        for view in views:
            name = view.get(ANDROID + "id", "").rpartition("/")[2]
            if name and name in kinds:
                errors.append(f"{file.name}: the id {name} is there twice")
            kinds[name] = view.tag.rpartition(".")[2]
            if view.tag in ("EditText", "SeekBar") and not view.get(ANDROID + "hint") and name not in labelled:
                errors.append(f"{file.name}: the input {name} has no label")
    fields = {name: kind for kind, name in re.findall(r"private (\w+) (\w+);", sources)}
    found = re.findall(r"^ *(\w+) = findViewById\(R\.id\.(\w+)\)", sources, re.M)
    pairs = [(fields[field], name) for field, name in found]
    pairs += re.findall(r"(\w+) \w+ = findViewById\(R\.id\.(\w+)\)", sources)
    pairs += [("Button", name) for name in re.findall(r"onClick\(\s*R\.id\.(\w+)", sources)]
    pairs += [("TextView", name) for name in re.findall(r"[^\w.]text\(R\.id\.(\w+)", sources)]
    for kind, name in pairs:
        allowed = {"CompoundButton": ["Switch", "CheckBox"], "TextView": ["TextView", "EditText", "Button"]}
        if kinds.get(name) not in allowed.get(kind, [kind]):
            errors.append(f"{name} is a {kinds.get(name)} in the layout, and a {kind} in the code")
    return errors


def main() -> int:
    source, *classes = map(Path, sys.argv[1:])
    manifest = ET.parse(source / "AndroidManifest.xml").getroot()
    sources = "\n".join(file.read_text(encoding="utf-8") for file in source.rglob("demo/*.java"))
    errors = check_components(manifest, parents(classes))
    errors += check_permissions(manifest, sources) + check_resources(source, sources) + check_layouts(source, sources)
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
