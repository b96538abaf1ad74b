// The online test: four forms over one service.

import { begin as beginChat } from "./chat.js";
import { begin as beginHistory } from "./history.js";
import { begin as beginImage } from "./image.js";
import { begin as beginModes } from "./modes.js";
import { begin as beginPaint } from "./paint.js";
import { begin as beginTensor } from "./tensor.js";

beginTensor();
beginImage();
beginChat();
beginPaint();
beginHistory();
beginModes();
