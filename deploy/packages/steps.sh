# What the packages do around the files that they bring: the .deb and the .rpm each put these functions into their scripts.
# DPKG_ROOT is where the system lies that is worked on (dpkg --root); empty for the running one. Nothing here may fail: a
# package that cannot be removed is worse than a folder that stays.
root=${DPKG_ROOT-}
units='@UNITS@'
sysusers='@SYSUSERS@'
tmpfiles='@TMPFILES@'
settings='@SETTINGS@'
records='@RECORDS@'
passing='@PASSING@'

# Is systemd in charge of the very system that is worked on?
is_running() { [ -z "$root" ] && [ -d /run/systemd/system ] && command -v systemctl >/dev/null; }

# After the files are there, new or upgraded: the user, its folders; services that run go on with the new files.
# Nothing is enabled or started here.
place() {
    if command -v systemd-sysusers >/dev/null; then systemd-sysusers --root="$root/" $sysusers || :; fi
    if command -v systemd-tmpfiles >/dev/null; then systemd-tmpfiles --root="$root/" --create $tmpfiles || :; fi
    if is_running; then
        systemctl daemon-reload || :
        for unit in $units; do systemctl try-restart "$unit" || :; done
    fi
}

# Before the files go for good (not before an upgrade).
retire() {
    if is_running; then
        for unit in $units; do systemctl --quiet disable --now "$unit" 2>/dev/null || :; done
    fi
    for hook in /etc/slurm/job_submit.lua /etc/slurm/cli_filter.lua; do
        if grep -qs opsk "$root$hook"; then
            echo "opsk: $hook stays, for slurmctld may need it to start: without opsk it lets every job through." \
                "Take lua out of JobSubmitPlugins and CliFilterPlugins before you remove it" >&2
        fi
    done
    for script in /etc/slurm/opsk-prolog /etc/slurm/opsk-epilog /etc/slurm/opsk-task-prolog; do
        if [ -e "$root$script" ]; then
            echo "opsk: $script stays, for slurm.conf may name it: a prolog or epilog that is missing drains nodes, a" \
                "TaskProlog ends tasks; without opsk it does nothing. Take its line out before you remove it" >&2
        fi
    done
}

# After the files are gone: what lived in memory only.
clear_passing() {
    for place in $passing; do rm -rf "$root"$place || :; done
    if is_running; then systemctl daemon-reload || :; fi
}

# Settings, records and the user, as if opsk had never been there.
clear_all() {
    for place in $settings $records; do rm -rf "$root$place" || :; done
    drop_user
}

# Only an account that our own sysusers.d made, in the system's own file.
drop_user() {
    if grep -Eqs '^opsk:[^:]*:[0-9]+:[0-9]+:opsk[^:]*:[^:]*:[^:]*nologin$' "$root/etc/passwd" &&
        command -v userdel >/dev/null; then
        userdel ${root:+--prefix "$root"} opsk || :
        # Where login.defs does not say USERGROUPS_ENAB, the group stays.
        if grep -Eqs '^opsk:[^:]*:[0-9]+:$' "$root/etc/group"; then groupdel ${root:+--prefix "$root"} opsk || :; fi
    fi
}

# Where the package manager knows no purge: what stays is said.
tell_left() {
    left=
    for place in $settings $records; do [ ! -e "$root$place" ] || left="$left $place"; done
    if [ -n "$left" ]; then
        echo "opsk: left as they are:$left (rm -r$left; userdel opsk)" >&2
    else
        drop_user
    fi
}
