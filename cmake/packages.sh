# Sourced by quickstart and check: the packages of packages.txt.

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# wanted_packages GROUP...: their names.
wanted_packages() {
    local groups=" $* " name group
    while read -r name group; do
        case $name in '' | '#'*) continue ;; esac
        case $groups in *" $group "*) echo "$name" ;; esac
    done <"$root/cmake/packages.txt"
}

# install_packages GROUP...: installs what is missing, with apt-get, as root or through sudo.
install_packages() {
    local wanted missing=() package as_root=() apt
    wanted=$(wanted_packages "$@")
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        echo "This is no Debian: make sure that you have what these Debian packages hold:"
        echo "  ${wanted//$'\n'/ }"
        return 0
    fi
    for package in $wanted; do
        # A package may be there under its own name or provided by another (pkg-config by pkgconf).
        dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        echo "All needed Debian packages are installed."
        return 0
    fi
    echo "Installing Debian packages: ${missing[*]}"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "not root and no sudo; as root run: apt-get install ${missing[*]}"
        as_root=(sudo)
    fi
    # Never for ever: not on another apt's lock, not on a silent mirror.
    apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive timeout 1800 apt-get -qq
        -o DPkg::Lock::Timeout=120 -o Acquire::http::Timeout=30 -o Dpkg::Use-Pty=0)
    "${apt[@]}" update </dev/null || die "apt-get update failed; is there a network?"
    "${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null ||
        die "apt-get could not install: ${missing[*]}"
}
