-- opsk for Lmod: finds its installation beside itself, in a checkout and below share/opsk.
-- Its name is the version.
local version = myFileName():match("([^/]+)%.lua$")
local root = myFileName():match("^(.*)/[^/]+/[^/]+/[^/]+$")
local programs = pathJoin(root, "deploy/bin")

whatis("Name: opsk")
whatis("Version: " .. version)
whatis("Category: system tools")
whatis("Description: Will this training job fit, how fast will it be, and where should its ranks lie?")

help([[
opsk helps those who run and use Slurm clusters that train large models.

  opsk check SCRIPT    will the job of this script fit, and how fast will it be?
  opsk top             the cluster on one screen: GPUs, jobs, fabric, failures
  opsk --help          all commands

The module puts nothing but the command opsk on PATH: your own python stays the first.
]])

if not isFile(pathJoin(programs, "opsk")) then
  LmodError("opsk/" .. version .. ": " .. programs .. "/opsk is missing: keep modulefiles/ and deploy/ side by side")
end

conflict("opsk")
prepend_path("PATH", programs)
