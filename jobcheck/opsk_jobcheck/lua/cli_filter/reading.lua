-- What is submitted, as far as files tell: the script's text, if it may train.
--@ shared/words.lua

local function quoted(path)
  return "'" .. path:gsub("'", "'\\''") .. "'"
end

local function absolute(path, base)
  path = path:gsub("^~/", (os.getenv("HOME") or "~") .. "/")
  if path:sub(1, 1) == "/" then return path end
  return (base or ".") .. "/" .. path
end

-- Opening a FIFO would wait for a writer, or rob the job of what it holds; Lua alone can only open. lua-filesystem, or
-- else the shell's test, asks the kernel for the type without opening.
local function is_regular(path)
  if path == "" or path:find("[%z\1-\31]") then return false end
  local lfs = library("lfs")
  if type(lfs) == "table" then return lfs.attributes(path, "mode") == "file" end
  local pipe = io.popen("test -f " .. quoted(absolute(path)) .. " && echo yes", "r")
  if not pipe then return false end
  local said = pipe:read(3)
  pipe:close()
  return said == "yes"
end

local function read_script(path)
  if not is_regular(path) then return nil end
  local file = io.open(path, "rb")
  if not file then return nil end
  local start = file:read(4) or ""
  local text
  if start ~= "\127ELF" then text = start .. (file:read(MAX_SCRIPT + 1 - #start) or "") end
  file:close()
  if not text or #text > MAX_SCRIPT or text:sub(1, 4096):find("\0", 1, true) then return nil end
  return text
end

local function words_of(options)
  local found, list = {}, options.argv
  for index = 1, 4096 do
    local word = list and list[index]
    if type(word) ~= "string" then break end
    found[index] = word
  end
  return found
end

-- A colon of its own before the script parts the components of a heterogeneous job.
local function has_components(first_word)
  local file = io.open("/proc/self/cmdline", "rb")
  if not file then return false end
  local line = file:read(MAX_SEARCHED) or ""
  file:close()
  local colon = line:find("\0:\0", 1, true)
  local script = first_word and line:find("\0" .. first_word .. "\0", 1, true)
  return colon ~= nil and (script == nil or colon < script)
end

local function what_is_submitted(options, command)
  local argv = words_of(options)
  if command ~= "sbatch" then return part(TYPED)(options, command, argv, read_script) end
  if is_set(options.wrap) then
    return "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n" .. options.wrap .. "\n", {}
  end
  if not argv[1] then return nil, nil end
  return read_script(argv[1]), argv
end

-- Returns what is to be asked about; nothing when it trains nothing or wants no advice.
local function read_submission(options, command)
  local script, argv, may_talk = what_is_submitted(options, command)
  if not argv or (not script and (command == "sbatch" or #argv == 0)) then return nil end
  local text = script or table.concat(argv, " ")
  if not looks_like_training(text) or opted_out(text) or (may_talk and not may_talk()) then return nil end
  return { script = script, script_name = script and argv[1] or nil, argv = argv, text = text,
    ascii = ascii_only(os.getenv) or nil, heterogeneous = has_components(argv[1]) }
end
