-- One conversation with the advisor.

-- A script starts a program, whose modules import others, which name a configuration.
local MAX_ROUNDS = 5
-- All files together; encoding more would take a good part of the deadline.
local MAX_FILES_TOTAL = 524288

local function question(talk, fields, files)
  fields.files = files
  fields.left_ms = math.max(1, math.floor(talk.left() * 1000))
  local body = json(fields)
  if #body <= MAX_QUESTION then return body end
  fields.files = nil
  return json(fields)
end

local function variables(text)
  local env = mentioned_variables(text, os.getenv)
  return next(env) and env or EMPTY_OBJECT
end

local function wanted(answer)
  return answer.status == "files" and #answer.path > 0
end

local function advise(talk, fields, found, base)
  local command, files, all, read_files, room = fields.command, {}, { found.text }, nil, MAX_FILES_TOTAL
  local first = question(talk, fields, nil)
  talk.connect()
  talk.say(first)
  local answer = hear(talk)
  for _ = 1, MAX_ROUNDS do
    if not wanted(answer) then break end
    read_files = read_files or part(FILES, quoted, absolute)
    for path, text in pairs(read_files(answer.path, base, math.max(0.01, talk.left() * 0.5), room)) do
      if files[path] == nil then files[path], all[#all + 1], room = text, text, room - #text end
    end
    fields.env = variables(table.concat(all, "\n"))
    talk.say(question(talk, fields, next(files) and files or nil))
    answer = hear(talk)
  end
  -- The advisor takes the end of the conversation for this: job_submit need not say it again.
  if answer.status == "advice" then show(command, answer) end
end

local function talk_about(found, command, options_json, base)
  local talk = converse(SETTINGS.cli_deadline_ms / 1000)
  if not talk then return end
  local detail = os.getenv("OPSK_ADVICE")
  pcall(advise, talk, {
    v = VERSION, kind = "advise", as_text = true, command = command, script = found.script, script_name = found.script_name,
    argv = found.argv, options_json = options_json, env = variables(found.text),
    cwd = base or os.getenv("PWD"), detail = (detail == "long" or detail == "short") and detail or nil,
    heterogeneous = found.heterogeneous or nil, ascii = found.ascii,
  }, found, base)
  talk.close()
end
