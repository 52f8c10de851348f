-- The words typed after salloc and srun: which of them is a script that trains?
local LONGEST = 262144
local SHELLS = { sh = true, bash = true, dash = true, zsh = true, ksh = true }

-- Which of the words typed after srun or salloc is a script? `bash train.sh 8`, `./train.sh 8`; else none.
local function script_among(argv, read_script)
  local first = (argv[1] or ""):match("[^/]*$")
  local at = 1
  if SHELLS[first] then
    at = 2
    while argv[at] and argv[at]:find("^%-") and argv[at] ~= "-c" do at = at + 1 end
    if not argv[at] or argv[at] == "-c" then return nil end
  elseif not (argv[1] or ""):find("/", 1, true) and not first:find("%.%a*sh$") then
    return nil
  end
  local text = read_script(argv[at])
  if not text or (at == 1 and text:sub(1, 2) ~= "#!") then return nil end
  local rest = {}
  for index = at, #argv do rest[#rest + 1] = argv[index] end
  return text, rest
end

-- 22.05 keeps the words typed after salloc to itself: they are what follows the options on its own command line.
local FLAGS = "HhIkKOQsuvV"
local LONG_FLAGS = { bell = true, contiguous = true, exclusive = true, hold = true, immediate = true,
  ["kill-command"] = true, ["no-bell"] = true, ["no-kill"] = true, ["no-shell"] = true, overcommit = true,
  oversubscribe = true, share = true, quiet = true, reboot = true, ["spread-job"] = true, ["use-min-nodes"] = true,
  verbose = true, x11 = true, ["get-user-env"] = true, ["parsable"] = true, usage = true }

local function takes_next_word(option)
  local long = option:match("^%-%-([^=]+)$")
  if long then return not LONG_FLAGS[long] end
  for letter, rest in option:gmatch("([^-])()") do
    if not FLAGS:find(letter, 1, true) then return rest > #option end
  end
  return false
end

local function words_after_options(command_line)
  local found, after_option, words = {}, false, false
  for word in command_line:gmatch("(%Z*)%z") do
    if #found >= 4096 then break end
    if words then
      found[#found + 1] = word
    elseif words == nil then
      found[1], words = word, true
    elseif after_option then
      after_option = false
    elseif word == "--" then
      words = nil
    elseif word:find("^%-.") and not word:find("^%-%-.-=") then
      after_option = takes_next_word(word)
    elseif not word:find("^%-") and word ~= ":" then
      found[1], words = word, true
    end
  end
  return found
end

local function typed_words(options, command, argv)
  if argv[1] or command ~= "salloc" then return argv end
  local file = io.open("/proc/self/cmdline", "rb")
  if not file then return argv end
  local line = file:read(LONGEST) or ""
  file:close()
  return words_after_options((line:gsub("^%Z*%z", "")))
end

-- lua-socket makes the whole process ignore SIGPIPE. A salloc with threads (26.05) takes SIGPIPE over in one of them and
-- gives its command what it found there, so that thread must come first; it has begun already, and needs microseconds.
-- A salloc without threads sets SIGPIPE back itself.
local function may_ignore_sigpipe()
  local latest = os.clock() + 0.05
  repeat
    local status = io.open("/proc/self/status")
    local text = status and status:read("*a") or "\nThreads:\t1\n"
    if status then status:close() end
    local caught = text:match("\nSigCgt:%s*(%x+)")
    -- Signal 13 is the lowest bit of the fourth digit from the right.
    if text:match("\nThreads:%s*1\n") or (caught and tonumber(caught:sub(-4, -4), 16) % 2 == 1) then return true end
  until os.clock() > latest
  return false
end

-- Returns the script among the words typed after salloc or srun, if there is one, and the words from there on; and
-- what has to be asked before lua-socket is loaded.
return function(options, command, argv, read_script)
  local words = typed_words(options, command, argv)
  local text, rest = script_among(words, read_script)
  return text, rest or words, command == "salloc" and may_ignore_sigpipe
end
